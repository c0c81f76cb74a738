package eviction

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// The scripts in testdata are commands to a Manager with its answers; go test ./eviction -rewrite
// writes the answers, to be reviewed as a diff.
//
//	new                                 a manager; one setting a line: hard SIGNAL VALUE, soft SIGNAL VALUE GRACE, min SIGNAL VALUE,
//	                                    live (not a replay), maxgrace SECONDS, transition DURATION, pods (allocatable copies), local, breaker, byrelease, explain
//	pods                                the pods from now on, one a line: name, then fields (see podFields)
//	step t=1m mem=1Gi [brief]           one look: mem alloc swap nodefs imagefs containerfs (bytes), nodefsi imagefsi (inodes), pid=used/max podpid=used/max,
//	                                    memfull iofull cpusome (shares of the last second), stats=1m (time of the figures, default t),
//	                                    layout=one|dedicated|split|unknown, growing=CGROUP
//	                                    kubelet: the disks are a kubelet's; memoryonly; measuring
//	observe t=1m mem=1Gi                the cheap half of a step, and the look that the next one needs
//	ready t=1m mem=1Gi                  the same, with the whole Ready; [limited] [recording] of the situation, [again]: without a new
//	                                    observation, [advance]: its outcomes are acknowledged
//	need t=1m SIGNAL | signals | lost t=1m | relief t=1m | relieved t=1m | lives
//	reclaimed t=1m nodefs=5Gi           the look after the reclaim that the last step asked for
//	begin level=N | killed | hasten | done t=1s died=true | cleaned | gone | resting t=1s     reports about the last evictions
//	kill                                all of these together, as in replay
func TestManagerScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt") // without fuzz, which go test keeps there too
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, path := range scripts {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				text, err := s.run(d)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return text
			})
		})
	}
}

var epoch = time.Unix(1_000_000, 0)

type script struct {
	m       *Manager
	pods    []stats.PodStats
	objects map[string]*Pod
	layout  stats.Opt[stats.Layout]
	last    Decision
	lives   []*Life // of the last evictions
}

func (s *script) run(d *datadriven.TestData) (string, error) {
	args := map[string]string{}
	for _, a := range d.CmdArgs {
		args[a.Key] = strings.Join(a.Vals, ",")
	}
	now, err := after(args["t"])
	if err != nil {
		return "", err
	}
	switch d.Cmd {
	case "new":
		return s.create(d.Input)
	case "pods":
		s.pods, s.objects = nil, map[string]*Pod{}
		for line := range strings.Lines(d.Input) {
			p, object, err := parsePod(strings.Fields(line))
			if err != nil {
				return "", err
			}
			if !strings.Contains(line, " unseen") {
				s.pods = append(s.pods, p)
			}
			if object != nil {
				s.objects[p.PodRef.UID] = NewPod(object)
				if strings.Contains(line, " static") {
					s.objects[p.PodRef.UID] = NewManifestPod(object)
				}
			}
		}
	case "observe":
		in := Input{Summary: &stats.Summary{Time: now}}
		if err := s.look(&in, now, args); err != nil {
			return "", err
		}
		r := s.m.Observe(now, &in.Summary.Node, Situation{ObserveDisks: in.ObserveDisks})
		d := Decision{Time: now, Met: r.Met, Conditions: r.Conditions}
		memory, full := s.m.looksNeeded(now)
		return fmt.Sprintf("%sasks: memory %v, full %v\n", d.text(true), memory, full), nil
	case "step", "reclaimed":
		in := Input{Summary: &stats.Summary{Time: now, Pods: s.pods}, Pods: s.objects, Foreign: s.m.config.Replay}
		if err := s.look(&in, now, args); err != nil {
			return "", err
		}
		if d.Cmd == "reclaimed" {
			s.last = s.m.StepAfterReclaim(now, in)
		} else {
			s.last = s.m.Step(now, in)
		}
		_, brief := args["brief"]
		return s.last.text(brief), nil
	case "ready", "need", "signals", "lost", "relief", "relieved", "lives":
		return s.ask(d.Cmd, now, args)
	default:
		return s.act(d.Cmd, now, args)
	}
	return "ok\n", nil
}

// act reports the progress of evictions to the manager.
func (s *script) act(cmd string, now time.Time, args map[string]string) (string, error) {
	if (cmd == "begin" || cmd == "kill") && len(s.last.Evictions) == 0 {
		return "", fmt.Errorf("the last step has no eviction")
	}
	if cmd == "begin" || cmd == "kill" {
		s.lives = nil
		for _, e := range s.last.Evictions {
			l := s.m.Begin(Stamp{Time: s.last.Time}, e, s.last.Signal)
			if args["level"] != "" {
				l.level = quantity(args["level"])
			}
			s.lives = append(s.lives, l)
		}
	}
	for _, l := range s.lives {
		switch cmd {
		case "killed":
			s.m.Killed(Stamp{Time: now}, l)
		case "hasten":
			s.m.Hasten(Stamp{Time: now}, l, s.last.Evictions[0], s.last.Signal)
		case "gone":
			s.m.Abandon(now, l)
		case "resting":
			return fmt.Sprintln(l.RecentlyUndying(now)), nil
		case "done":
			if args["died"] == "true" {
				s.m.Emptied(Stamp{Time: now}, l)
			} else {
				s.m.MarkUndying(now, l)
			}
		case "cleaned":
			s.m.Cleaned(Stamp{Time: now}, l)
		case "kill":
			s.m.Emptied(Stamp{Time: s.last.Time}, l)
			s.m.Cleaned(Stamp{}, l)
		case "begin":
		default:
			return "", fmt.Errorf("no command %q", cmd)
		}
	}
	return "ok\n", nil
}

func (s *script) create(input string) (string, error) {
	settings := Settings{EvictionHard: map[string]string{}, EvictionSoft: map[string]string{}, EvictionSoftGracePeriod: map[string]string{}, EvictionMinimumReclaim: map[string]string{}, OwnSignals: true}
	c := Config{Replay: true, MemoryAvailable: stats.MemoryAvailableKernel, PressureTransitionPeriod: 5 * time.Minute, Policy: Policy{
		AnnotationNamespaces: []string{"kube-system"}, ProtectedNamespaces: []string{"kube-system"},
	}}
	for line := range strings.Lines(input) {
		f := append(strings.Fields(line), "", "", "")
		switch f[0] {
		case "hard":
			settings.EvictionHard[f[1]] = f[2]
		case "soft":
			settings.EvictionSoft[f[1]], settings.EvictionSoftGracePeriod[f[1]] = f[2], f[3]
		case "min":
			settings.EvictionMinimumReclaim[f[1]] = f[2]
		case "maxgrace":
			c.MaxPodGracePeriodSeconds = parsedValue(f[1])
		case "transition":
			c.PressureTransitionPeriod, _ = time.ParseDuration(f[1])
		case "pods":
			settings.EnforceNodeAllocatable = []string{"pods"}
		case "live":
			c.Replay = false
		case "local":
			c.LocalStorage = true
		case "breaker":
			c.Breaker = true
		case "explain":
			c.Explain = true
		case "byrelease":
			c.Policy.ByRelease = true
		default:
			return "", fmt.Errorf("no setting %q", f[0])
		}
	}
	var warnings, errs []*FieldError
	if c.Thresholds, warnings, errs = settings.Parse(); len(errs) > 0 || len(warnings) > 0 {
		return "", fmt.Errorf("%v %v", warnings, errs)
	}
	*s = script{m: NewManager(c), layout: stats.Some(stats.Layout{})}
	return "ok\n", nil
}

func after(text string) (time.Time, error) {
	if text == "" {
		return epoch, nil
	}
	d, err := time.ParseDuration(text)
	return epoch.Add(d), err
}

// look fills in a Summary.
func (s *script) look(in *Input, now time.Time, args map[string]string) error {
	at := now
	if text, ok := args["stats"]; ok {
		var err error
		if at, err = after(text); err != nil {
			return err
		}
	}
	n := &in.Summary.Node
	n.Layout = s.layout
	disk := func(fs *stats.Opt[stats.FsStats]) *stats.FsStats {
		fs.OK, fs.V.Time = true, at
		return &fs.V
	}
	bytes := func(fs *stats.FsStats, v string) {
		fs.AvailableBytes, fs.CapacityBytes = stats.Some(quantity(v)), stats.Some(quantity("100Gi"))
	}
	inodes := func(fs *stats.FsStats, v string) {
		fs.InodesFree, fs.Inodes = stats.Some(quantity(v)), stats.Some(quantity("10Mi"))
	}
	share := func(p *stats.Pressure, of *stats.StallShare, text string) error {
		var v float64
		_, err := fmt.Sscan(text, &v)
		p.Time, of.Over1s = at, stats.Some(v)
		return err
	}
	for key, v := range args {
		switch key {
		case "t", "brief", "stats", "again", "advance", "limited", "recording":
		case "kubelet":
			in.ObserveDisks = true
		case "measuring":
			in.Measuring = true
		case "memoryonly":
			in.MemoryOnly = true
		case "mem":
			left, all, _ := strings.Cut(v, "/")
			n.Memory = stats.NodeMemoryStats{Time: at, CapacityBytes: stats.Some(quantity(cmp.Or(all, "8Gi"))), KernelAvailableBytes: stats.Some(quantity(left))}
		case "alloc":
			n.Allocatable = stats.AllocatableMemoryStats{Time: at, LimitBytes: stats.Some(quantity("8Gi")), WorkingSetBytes: stats.Some(quantity("8Gi") - quantity(v))}
		case "swap":
			if v == "none" {
				n.Swap = stats.NodeSwapStats{Time: at, TotalBytes: stats.Some(uint64(0)), FreeBytes: stats.Some(uint64(0))}
				break
			}
			n.Swap = stats.NodeSwapStats{Time: at, TotalBytes: stats.Some(quantity("4Gi")), FreeBytes: stats.Some(quantity(v))}
		case "pid":
			used, most, _ := strings.Cut(v, "/")
			n.PIDs.Time, n.PIDs.Current, n.PIDs.Max = at, stats.Some(quantity(used)), stats.Some(quantity(most))
		case "podpid":
			used, most, _ := strings.Cut(v, "/")
			n.PIDs.PodsCurrent, n.PIDs.PodsMax = stats.Some(quantity(used)), stats.Some(quantity(most))
		case "nodefs":
			bytes(disk(&n.Fs), v)
		case "imagefs":
			bytes(disk(&n.ImageFs), v)
		case "containerfs":
			bytes(disk(&n.ContainerFs), v)
		case "nodefsi":
			inodes(disk(&n.Fs), v)
		case "imagefsi":
			inodes(disk(&n.ImageFs), v)
		case "memfull":
			if err := share(&n.Pressure.Memory, &n.Pressure.Memory.Full, v); err != nil {
				return err
			}
		case "iofull":
			if err := share(&n.Pressure.IO, &n.Pressure.IO.Full, v); err != nil {
				return err
			}
		case "cpusome":
			if err := share(&n.Pressure.CPU, &n.Pressure.CPU.Some, v); err != nil {
				return err
			}
		case "layout":
			s.layout = stats.Opt[stats.Layout]{V: stats.Layout{DedicatedImageFs: v != "one", SplitContainerFs: v == "split"}, OK: v != "unknown"}
			n.Layout = s.layout
		case "growing":
			in.Growing = []Growth{{"kubepods", 1}, {v, 120 << 20}, {"init.scope", -5}}
		default:
			return fmt.Errorf("no argument %q", key)
		}
	}
	return nil
}

// podFields: qos use(memory) shmem request(runtime's: 1Gi or 1Gi..2Gi) priority(annotation) ns
// source mirror critical self stranger uid empty unread age anon freed swap hit io cpu threads
// procs rootfs=BYTES partial=BYTES unnamed=BYTES logs=BYTES rootinodes=N cgroup=ID; and of an
// object: prio req(memory) alloc(the kubelet's request) es(request) limit(of storage) dir=NAME:USED[:LIMIT[:memory]] tgps
// annotated(never-evict) objname static(a manifest's) finished podlogs=BYTES(of the pod, not of a
// container)
func parsePod(words []string) (p stats.PodStats, object *v1.Pod, err error) {
	p = stats.PodStats{
		PodRef:    stats.PodReference{Name: words[0], UID: words[0], Namespace: "default"},
		Announced: true, Annotations: map[string]string{"kubernetes.io/config.source": "api"},
		Populated: stats.Some(true), StartTime: epoch.Add(-time.Hour),
	}
	o := &v1.Pod{}
	o.Spec.Containers = []v1.Container{{Name: "c"}}
	isObject := false
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch ok, err := runtimeField(&p, key, value); {
		case err != nil:
			return p, nil, err
		case ok:
			continue
		}
		isObject = true
		if err := objectField(o, &p, key, value); err != nil {
			return p, nil, err
		}
	}
	if !isObject {
		return p, nil, nil
	}
	o.Name, o.Namespace, o.UID = cmp.Or(o.Name, p.PodRef.Name), p.PodRef.Namespace, types.UID(p.PodRef.UID)
	o.Status.QOSClass = v1.PodQOSClass(p.QOSClass)
	if !p.Announced { // only the object has the namespace
		p.PodRef.Namespace = ""
	}
	return p, o, nil
}

func container(p *stats.PodStats) *stats.ContainerStats {
	if len(p.Containers) == 0 {
		p.Containers = []stats.ContainerStats{{Name: "c"}}
	}
	return &p.Containers[0]
}

func runtimeField(p *stats.PodStats, key, value string) (known bool, err error) {
	switch key {
	case "qos":
		p.QOSClass = stats.QOSClass(value)
	case "use":
		p.Memory.WorkingSetBytes = stats.Some(quantity(value))
	case "shmem":
		p.Memory.ShmemBytes = stats.Some(quantity(value))
	case "anon":
		p.Memory.AnonBytes = stats.Some(quantity(value))
	case "freed":
		p.Memory.FreedBytes = stats.Some(stats.ExactRange(quantity(value)))
	case "swap":
		p.Memory.SwapBytes = stats.Some(quantity(value))
	case "hit":
		p.Events = stats.Some(stats.MemoryEvents{Max: quantity(value)})
	case "io":
		p.IO = stats.Some(stats.IOStat{WriteBytes: quantity(value)})
	case "cpu":
		p.CPU.Usage = stats.Some(time.Duration(quantity(value)) * time.Second)
	case "threads":
		p.Threads = stats.Some(quantity(value))
	case "procs":
		p.Processes = stats.Some(quantity(value))
	case "request":
		least, most, isRange := strings.Cut(value, "..")
		if !isRange {
			most = least
		}
		p.MemoryRequest = stats.Some(stats.Range{Min: quantity(least), Max: quantity(most)})
	case "priority":
		p.Annotations["jettison/priority"] = value
	case "memreq":
		p.Annotations["jettison/memory-request"] = value
	case "never":
		p.Annotations["jettison/never-evict"] = cmp.Or(value, "true")
	case "ns":
		p.PodRef.Namespace = value
	case "source":
		p.Annotations["kubernetes.io/config.source"] = value
	case "mirror":
		p.Annotations["kubernetes.io/config.mirror"] = "hash"
	case "critical":
		p.NodeCritical = true
	case "self":
		p.Self = true
	case "stranger":
		p.Announced, p.Annotations, p.PodRef.Namespace, p.PodRef.Name = false, nil, "", ""
	case "uid":
		p.PodRef.UID = value
	case "sandbox":
		p.SandboxIDs = []string{value}
	case "unread":
		p.Populated = stats.Opt[bool]{}
	case "empty":
		p.Populated = stats.Some(false)
	case "rootfs":
		container(p).Rootfs = stats.Some(stats.FsUsage{UsedBytes: quantity(value)})
	case "logs":
		container(p).Logs = stats.Some(stats.FsUsage{UsedBytes: quantity(value)})
	case "podlogs":
		p.EphemeralStorage.Logs = stats.Some(stats.FsUsage{UsedBytes: quantity(value)})
	case "unnamed": // on the one file system of the node
		one := stats.Some(stats.FsUsage{UsedBytes: quantity(value), InodesUsed: 1})
		p.EphemeralStorage.Unnamed = stats.UnnamedStats{Node: one, Image: one, Container: one}
	case "partial":
		container(p).Rootfs = stats.Some(stats.FsUsage{UsedBytes: quantity(value), Partial: true})
	case "rootinodes":
		container(p).Rootfs = stats.Some(stats.FsUsage{InodesUsed: quantity(value)})
	case "tmpfs": // a volume in memory, of a pod without a known object
		p.EphemeralStorage.Volumes = append(p.EphemeralStorage.Volumes, stats.VolumeStats{Name: "tmpfs", Memory: true, FsUsage: stats.FsUsage{UsedBytes: quantity(value)}})
	case "total":
		p.EphemeralStorage.UsedBytes = stats.Some(quantity(value))
	case "age":
		age, err := time.ParseDuration(value)
		p.StartTime = epoch.Add(-age)
		return true, err
	default:
		return false, nil
	}
	return true, nil
}

func objectField(o *v1.Pod, p *stats.PodStats, key, value string) error {
	r := &o.Spec.Containers[0].Resources
	set := func(list *v1.ResourceList, name v1.ResourceName) {
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[name] = parsed(value)
	}
	switch key {
	case "object", "unseen": // unseen: only the object is known, the Summary does not contain the pod
	case "prio":
		n := int32(0)
		_, err := fmt.Sscan(value, &n)
		o.Spec.Priority = &n
		return err
	case "req":
		set(&r.Requests, v1.ResourceMemory)
	case "alloc":
		s := v1.ContainerStatus{Name: "c"}
		set(&s.AllocatedResources, v1.ResourceMemory)
		o.Status.ContainerStatuses = []v1.ContainerStatus{s}
	case "es":
		set(&r.Requests, v1.ResourceEphemeralStorage)
	case "limit":
		set(&r.Limits, v1.ResourceEphemeralStorage)
	case "tgps":
		n := int64(quantity(value))
		o.Spec.TerminationGracePeriodSeconds = &n
	case "finished":
		o.Status.Phase = v1.PodFailed
	case "annotated":
		o.Annotations = map[string]string{"jettison/never-evict": "true"}
	case "objname":
		o.Name = value
	case "objectsource":
		o.Annotations = map[string]string{"kubernetes.io/config.source": value}
	case "static":
		o.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	case "dir": // NAME:USED[:LIMIT[:memory]]
		f := append(strings.Split(value, ":"), "", "")
		v := v1.Volume{Name: f[0], VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
		if f[2] != "" {
			q := parsed(f[2])
			v.EmptyDir.SizeLimit = &q
		}
		if f[3] == "memory" {
			v.EmptyDir.Medium = v1.StorageMediumMemory
		}
		o.Spec.Volumes = append(o.Spec.Volumes, v)
		p.EphemeralStorage.Volumes = append(p.EphemeralStorage.Volumes, stats.VolumeStats{Name: f[0], Memory: f[3] == "memory", FsUsage: stats.FsUsage{UsedBytes: quantity(f[1])}})
	case "foreign": // a volume of the Summary that the object does not list as local
		p.EphemeralStorage.Volumes = append(p.EphemeralStorage.Volumes, stats.VolumeStats{Name: "foreign", FsUsage: stats.FsUsage{UsedBytes: quantity(value)}})
	default:
		return fmt.Errorf("no field %q", key)
	}
	return nil
}

// text writes a decision for the scripts.
func (d Decision) text(brief bool) string {
	var b strings.Builder
	if len(d.Conditions) > 0 {
		fmt.Fprintf(&b, "conditions %v\n", d.Conditions)
	}
	for _, m := range d.Met {
		fmt.Fprintf(&b, "met %s, observed %s, for %v", m.Threshold, m.ObservedText(), d.Time.Sub(m.Since))
		if !m.Threshold.Hard() {
			fmt.Fprintf(&b, " of %v", m.Threshold.Grace)
		}
		b.WriteString("\n")
	}
	for _, w := range d.Reclaim {
		fmt.Fprintf(&b, "reclaim %s for %v\n", w.What, w.Signals)
	}
	for i, r := range d.Ranking {
		if brief {
			break
		}
		name := r.Pod.PodRef.Name
		if name == "" {
			name = "uid " + r.Pod.PodRef.UID
		}
		fmt.Fprintf(&b, "%d. %s: %s", i+1, name, r.Explain())
		if r.DecidedBy != "" {
			fmt.Fprintf(&b, " [after the previous pod by %s]", r.DecidedBy)
		}
		b.WriteString("\n")
	}
	for _, c := range d.Protected {
		fmt.Fprintf(&b, "protected %q: %s\n", c.Pod.PodRef.Name, c.Protected)
	}
	for _, e := range d.Evictions {
		fmt.Fprintf(&b, "evict %s for %s, grace %d s: %s\n", e.Pod.PodRef.UID, e.Signal, e.GracePeriodSeconds, strings.TrimSpace(e.Message))
		if e.CutsGracePeriod {
			b.WriteString("immediately: already being evicted\n")
		}
	}
	switch {
	case len(d.Evictions) == 0 && d.Reason != "":
		fmt.Fprintf(&b, "no eviction: %s\n", d.Reason)
	case len(d.Met) == 0 && len(d.Evictions) == 0:
		b.WriteString("no threshold is met\n")
	}
	return b.String()
}
