package gcfiles

import (
	"fmt"
	"time"

	"jettison/internal/base/strict"
	"jettison/reclaim"
	"jettison/stats"
)

// gc is the content of gc.json (design: "GC from files"). Pointers distinguish absent from zero.
type gc struct {
	Now    *timestamp `json:"now"`
	Policy struct {
		Container struct {
			MinAge             *duration `json:"minAge"`
			MaxPerPodContainer *int32    `json:"maxPerPodContainer"`
			MaxContainers      *int32    `json:"maxContainers"`
			CreatedMinAge      *duration `json:"createdMinAge"`
		} `json:"container"`
		Image struct {
			HighThresholdPercent *int32    `json:"highThresholdPercent"`
			LowThresholdPercent  *int32    `json:"lowThresholdPercent"`
			MinAge               *duration `json:"minAge"`
			MaxAge               *duration `json:"maxAge"`
		} `json:"image"`
	} `json:"policy"`
	ImageFs *struct {
		CapacityBytes  *number `json:"capacityBytes"`
		AvailableBytes *number `json:"availableBytes"`
	} `json:"imageFs"`
	Pods []struct {
		UID   string `json:"uid"`
		Phase string `json:"phase"`
	} `json:"pods"`
	PodsSynced bool `json:"podsSynced"`
	Images     map[string]struct {
		FirstDetected *timestamp `json:"firstDetected"`
		LastUsed      *timestamp `json:"lastUsed"`
	} `json:"images"`
	ImagesInUse  []string   `json:"imagesInUse"`
	AgentStarted *timestamp `json:"agentStarted"`
	LogDir       []string   `json:"logDir"`
	Trigger      string     `json:"trigger"`
}

var phases = map[string]reclaim.Phase{"Active": reclaim.Active, "Terminated": reclaim.Terminated,
	"Evicted": reclaim.Evicted}

// parseGC parses gc.json.
func parseGC(n *Node, text []byte) error {
	file := gc{}
	if err := unmarshal(text, &file, true); err != nil {
		return err
	}
	if file.Now.time().IsZero() {
		return strict.NewFieldError("now", "missing")
	}
	n.Now = time.Time(*file.Now)
	n.Policy = file.policy()
	l := &n.Look
	switch file.Trigger {
	case "", "periodic":
	case "diskPressure":
		l.Trigger = reclaim.DiskPressure
	default:
		return strict.NewFieldError("trigger", fmt.Sprintf("%.40q is not periodic or diskPressure", file.Trigger))
	}
	if fs := file.ImageFs; fs != nil {
		if fs.CapacityBytes == nil {
			return strict.NewFieldError("imageFs.capacityBytes", "missing")
		}
		if fs.AvailableBytes == nil {
			return strict.NewFieldError("imageFs.availableBytes", "missing")
		}
		l.ImageFs = stats.Some(reclaim.ImageFsSize{CapacityBytes: uint64(*fs.CapacityBytes),
			AvailableBytes: uint64(*fs.AvailableBytes)})
	}
	uids := make(unique, len(file.Pods))
	l.Pods = make(map[string]reclaim.Phase, len(file.Pods))
	for i, p := range file.Pods {
		if err := uids.add(fmt.Sprintf("pods[%d].uid", i), p.UID); err != nil {
			return err
		}
		phase, ok := phases[p.Phase]
		if !ok {
			return wrongState(fmt.Sprintf("pods[%d].phase", i), p.Phase, "Active, Terminated or Evicted")
		}
		l.Pods[p.UID] = phase
	}
	l.Records = make(reclaim.Records, len(file.Images))
	for id, r := range file.Images {
		l.Records[id] = reclaim.ImageRecord{FirstDetected: r.FirstDetected.time(),
			LastUsed: r.LastUsed.time()}
	}
	l.PodsSynced, l.ImagesInUse, l.LogDir, l.AgentStarted = file.PodsSynced, file.ImagesInUse,
		file.LogDir, file.AgentStarted.time()
	return nil
}

// policy returns the policy of the file, with defaults for fields that it does not set.
func (f *gc) policy() reclaim.Policy {
	p := reclaim.DefaultPolicy()
	c, i := &f.Policy.Container, &f.Policy.Image
	for _, d := range []struct {
		from *duration
		to   *time.Duration
	}{
		{c.MinAge, &p.Container.MinAge}, {c.CreatedMinAge, &p.Container.CreatedMinAge},
		{i.MinAge, &p.Image.MinAge}, {i.MaxAge, &p.Image.MaxAge},
	} {
		if d.from != nil {
			*d.to = time.Duration(*d.from)
		}
	}
	for _, v := range []struct {
		from *int32
		to   *int
	}{
		{c.MaxPerPodContainer, &p.Container.MaxPerPodContainer},
		{c.MaxContainers, &p.Container.MaxContainers},
		{i.HighThresholdPercent, &p.Image.HighThresholdPercent},
		{i.LowThresholdPercent, &p.Image.LowThresholdPercent},
	} {
		if v.from != nil {
			*v.to = int(*v.from)
		}
	}
	return p
}
