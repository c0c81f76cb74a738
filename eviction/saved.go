package eviction

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"jettison/stats"
)

// Saved is the state of a Manager that must survive a restart: the evictions that are not over, the
// pods that survived a kill or were evicted recently, the breakers, and the quiet disks. It does
// not contain the times since which thresholds are met and conditions are true. A look after the
// restart shows which thresholds are met, but not that they were met without a break. Times are
// absolute.
type Saved struct {
	Lives   []SavedLife    `json:"lives,omitempty"`
	Aside   []SavedAside   `json:"setAside,omitempty"`
	Evicted []SavedEvicted `json:"evicted,omitempty"`
	Breaker []SavedBreaker `json:"breaker,omitempty"`
	Shmem   *SavedPool     `json:"shmem,omitempty"` // nil: no shared memory is expected
	// absent in older agents' files: unknown
	Disks []SavedDisk `json:"disks,omitempty"`
	// empty: no pod was evicted for a disk's shortage that pods did not explain
	Suspicions []SavedSuspicion `json:"suspicions,omitempty"`
	// Futile contains the counts of an older agent, by resource. It is read and not written.
	Futile map[string]int `json:"futile,omitempty"`
}

// SavedBreaker is the saved breaker of one threshold.
type SavedBreaker struct {
	Signal stats.Signal `json:"signal"`
	Hard   bool         `json:"hard,omitempty"`
	Futile int          `json:"futile"` // evictions in a row that did not help
	// usage of each pod when the breaker opened, by UID; nil: no look since
	Known  map[string]uint64 `json:"known,omitzero"`
	Unread bool              `json:"unread,omitempty"` // the usage of some pods is not known yet
	// returns of futile victims, by namespace/name of their workload
	FutileReturns map[string]uint64 `json:"vain,omitempty"`
	// evictions that the open breaker allowed
	Trials int       `json:"tries,omitempty"`
	Until  time.Time `json:"until,omitzero"` // earliest next trial
	// Stopped holds the usage of all pods when the breaker opened, and the amount left. It is absent
	// in older agents' files: unknown.
	Stopped *SavedPodTotals `json:"stopped,omitempty"`
}

// SavedDisk is the state of a quiet disk by one signal. Later shortages are compared with it.
type SavedDisk struct {
	Signal stats.Signal `json:"signal"`
	// when it was last quiet; zero: never seen quiet
	Quiet time.Time         `json:"quiet,omitzero"`
	Used  uint64            `json:"used,omitempty"` // at that time, in the signal's unit
	Pods  map[string]uint64 `json:"pods,omitempty"` // usage of each pod at that time, by UID
	// Unmeasured lists the UIDs of pods that existed then and were not measured. It is absent in
	// older agents' files: none.
	Unmeasured []string `json:"unmeasured,omitempty"`
	// since when a shortage is unexplained; zero: no such shortage
	Doubt time.Time `json:"doubt,omitzero"`
	Ended time.Time `json:"ended,omitzero"` // end of that shortage; zero: it has not ended
}

// SavedSuspicion is the saved delay of evictions for a disk's shortages that pods do not explain.
type SavedSuspicion struct {
	FileSystem   string    `json:"fileSystem"`
	Hard         bool      `json:"hard,omitempty"`
	Last         time.Time `json:"last"`                   // the last such eviction
	DelaySeconds int64     `json:"delaySeconds,omitempty"` // until the next one; 0: the shortest
}

// SavedLife is the saved form of a Life. Times are absolute; the caller reads the monotonic ones.
type SavedLife struct {
	Eviction    SavedEviction `json:"eviction"`
	Met         *SavedMet     `json:"met,omitempty"`    // nil: unknown, or the pod's own limit
	Record      string        `json:"record,omitempty"` // ID of its record
	RemoveFiles bool          `json:"removeFiles,omitempty"`
	KillWaits   bool          `json:"killWaits,omitempty"`
	Level       uint64        `json:"level"` // observed when the eviction began, in the signal's unit
	// Awaited is by signal. By kind: Due is the expected return, and Holds the part that the victim
	// still held when measured after the kill. All are absent in older agents' files: unknown.
	Awaited map[string]SavedAwaited `json:"awaited,omitempty"`
	Due     map[string]uint64       `json:"due,omitempty"`
	Holds   map[string]uint64       `json:"holds,omitempty"`
	// nil: no shared memory worth waiting for
	Shmem *SavedShmem `json:"shmem,omitempty"`
	// nil: the usage of all pods at the start of the eviction is unknown
	PodTotals *SavedPodTotals `json:"together,omitempty"`
	Began     Stamp           `json:"began"`
	Deadline  time.Time       `json:"deadline,omitzero"` // end of its grace period
	Killed    Stamp           `json:"killed,omitzero"`   // zero: stopped within its grace period
	Emptied   Stamp           `json:"emptied,omitzero"`  // zero: processes may be left
	Clean     bool            `json:"clean,omitempty"`   // the runtime has cleaned up
	Cleaned   Stamp           `json:"cleaned,omitzero"`  // time of the clean-up
	// a large part of its returns is shared memory
	Shared         bool   `json:"shared,omitempty"`
	CameBack       bool   `json:"cameBack,omitempty"`
	Undying        bool   `json:"undying,omitempty"`
	Gone           bool   `json:"gone,omitempty"`    // nothing is left to carry out
	Settled        bool   `json:"settled,omitempty"` // other thresholds no longer wait for it
	Outcome        string `json:"outcome,omitempty"` // empty: unknown
	Unacknowledged bool   `json:"untold,omitempty"`  // the caller has not acknowledged it
}

// SavedMet is the observation that led to the decision on an eviction.
type SavedMet struct {
	Since    time.Time `json:"since,omitzero"` // since when the threshold was met
	Time     time.Time `json:"time,omitzero"`
	Value    uint64    `json:"value"`
	Capacity uint64    `json:"capacity"` // 0: unknown observation
}

// SavedEviction is the saved form of an Eviction, without measurements of the pod.
type SavedEviction struct {
	Pod                SavedPod          `json:"pod"`
	Signal             stats.Signal      `json:"signal"`
	Hard               bool              `json:"hard,omitempty"`
	GracePeriodSeconds int64             `json:"gracePeriodSeconds"`
	Reason             string            `json:"reason,omitempty"`
	Message            string            `json:"message,omitempty"`
	Annotations        map[string]string `json:"annotations,omitempty"`
	Disruption         bool              `json:"disruption,omitempty"`
	Returns            uint64            `json:"returns,omitempty"` // in the signal's unit; 0: unknown
	// measurements did not explain the disk's shortage
	Suspected bool `json:"suspected,omitempty"`
}

// SavedPod identifies a victim, and distinguishes it from a later pod with the same UID.
type SavedPod struct {
	UID       string         `json:"uid"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name,omitempty"`
	QOSClass  stats.QOSClass `json:"qos,omitempty"`
	// path below the root; empty: no cgroup was found
	Cgroup     string   `json:"cgroup,omitempty"`
	CgroupDev  uint64   `json:"cgroupDev,omitempty"`
	CgroupIno  uint64   `json:"cgroupIno,omitempty"`
	SandboxIDs []string `json:"sandboxIds,omitempty"` // newest first
}

// SavedAside is a pod that survived a kill.
type SavedAside struct {
	UID   string    `json:"uid"`
	Until time.Time `json:"until"`
	Times int       `json:"times"` // in a row
}

// SavedEvicted is a pod that died.
type SavedEvicted struct {
	UID   string    `json:"uid"`
	Times int       `json:"times"`
	Last  time.Time `json:"last"`
}

// Bounds of the saved state. A node has a few hundred pods and evicts one at a time.
const (
	maxLives      = 128
	maxRemembered = 1024 // pods set aside, and pods evicted
	maxSandboxes  = 64
	maxName       = 253 // k8s.io/apimachinery/pkg/util/validation DNS1123SubdomainMaxLength
	maxPath       = 4096
	maxMessage    = 4096
	maxTimes      = 1000
	maxTrials     = 5         // the delay no longer grows after that many
	maxSetAsides  = 5         // the time no longer grows after that many
	maxSavedGrace = 24 * 3600 // seconds
)

// kindNames contains the names of the kinds in the saved state.
var kindNames = [kinds]string{"memory", "swap", "pids", "bytes", "inodes", "room", "memoryPressure",
	"ioPressure", "cpuPressure"}

// saveEviction returns the saved form of an eviction. It shares no memory with it.
func saveEviction(e *Eviction) SavedEviction {
	p := &e.Pod
	return SavedEviction{
		Pod: SavedPod{
			UID: p.PodRef.UID, Namespace: p.PodRef.Namespace, Name: p.PodRef.Name, QOSClass: p.QOSClass,
			Cgroup:    p.Cgroup,
			CgroupDev: p.CgroupID.Dev, CgroupIno: p.CgroupID.Ino,
			SandboxIDs: slices.Clone(p.SandboxIDs[:min(len(p.SandboxIDs), maxSandboxes)]),
		},
		Signal: e.Signal, Hard: e.hard, GracePeriodSeconds: e.GracePeriodSeconds, Reason: e.Reason,
		Message:     truncate(e.Message, maxMessage),
		Annotations: maps.Clone(e.Annotations), Disruption: e.Disruption, Returns: e.Returns,
		Suspected: e.suspected,
	}
}

// Eviction restores an eviction that can be carried out, or returns an error. To ensure that the
// killed pod is the ranked pod, it rejects a cgroup with a path that does not contain the pod's
// UID, or without an inode number.
func (s *SavedEviction) Eviction() (Eviction, error) {
	info, known := signals[s.Signal]
	e := Eviction{
		Signal: s.Signal, GracePeriodSeconds: min(max(s.GracePeriodSeconds, hardGrace), maxSavedGrace),
		Reason:  truncate(s.Reason, maxName),
		Message: truncate(s.Message, maxMessage), Disruption: s.Disruption, Returns: s.Returns,
		kind: info.kind, suspected: s.Suspected && info.kind.disk(),
	}
	if e.Planned() {
		e.kind, known = kindRoom, true
	}
	if !known && !e.Local() {
		return Eviction{}, fmt.Errorf("unknown signal %.64q", string(s.Signal))
	}
	if e.hard = s.Hard && !e.Local() && !e.Planned(); e.hard || e.Local() {
		e.GracePeriodSeconds = hardGrace
	}
	if e.Returns > implausible {
		e.Returns = 0
	}
	size := 0
	for key, value := range s.Annotations {
		size += len(key) + len(value)
	}
	if size > 0 && size <= 4*maxMessage {
		e.Annotations = maps.Clone(s.Annotations)
	}
	return e, s.Pod.restore(&e.Pod)
}

// restore fills in the saved fields of the pod.
func (s *SavedPod) restore(p *stats.PodStats) error {
	if err := checkName("a UID", s.UID); err != nil {
		return err
	}
	for _, w := range [][2]string{{"a namespace", s.Namespace}, {"a name", s.Name}} {
		if err := checkName(w[0], w[1]); err != nil && w[1] != "" {
			return fmt.Errorf("pod %s: %w", s.UID, err)
		}
	}
	if !slices.Contains([]stats.QOSClass{stats.BestEffort, stats.Burstable, stats.Guaranteed, ""},
		s.QOSClass) {
		return fmt.Errorf("pod %s: unknown QoS class %.64q", s.UID, string(s.QOSClass))
	}
	if len(s.SandboxIDs) > maxSandboxes {
		return fmt.Errorf("pod %s: too many sandboxes (%d)", s.UID, len(s.SandboxIDs))
	}
	for _, id := range s.SandboxIDs {
		if err := checkName("the ID of a sandbox", id); err != nil {
			return fmt.Errorf("pod %s: %w", s.UID, err)
		}
	}
	if s.Cgroup == "" && len(s.SandboxIDs) == 0 {
		return fmt.Errorf("pod %s: neither its cgroup nor a sandbox is known", s.UID)
	}
	if s.Cgroup != "" {
		dir, base := path.Split(s.Cgroup)
		c, ok := stats.ParsePodCgroup(strings.Trim(dir, "/"), base)
		switch {
		case len(s.Cgroup) > maxPath || s.Cgroup != c.Path || s.Cgroup != path.Clean(s.Cgroup) ||
			strings.HasPrefix(s.Cgroup, ".."):
			return fmt.Errorf("pod %s: %.300q is not a cgroup path", s.UID, s.Cgroup)
		case !ok || c.UID != s.UID:
			return fmt.Errorf("pod %s: %q is not the pod's cgroup", s.UID, s.Cgroup)
		case s.CgroupIno == 0:
			return fmt.Errorf("pod %s: cgroup %q has no inode number", s.UID, s.Cgroup)
		}
	}
	p.PodRef = stats.PodReference{UID: s.UID, Namespace: s.Namespace, Name: s.Name}
	p.QOSClass, p.Cgroup, p.SandboxIDs, p.Announced = s.QOSClass, s.Cgroup, slices.Clone(s.SandboxIDs),
		s.Name != ""
	p.CgroupID.Dev, p.CgroupID.Ino = s.CgroupDev, s.CgroupIno
	return nil
}

// checkName returns an error unless text can be a name: not empty, not too long, one line, without
// spaces and slashes.
func checkName(what, text string) error {
	switch {
	case text == "":
		return errors.New(what + " is missing")
	case len(text) > maxName:
		return fmt.Errorf("%s of %d bytes is too long", what, len(text))
	case strings.ContainsFunc(text, func(r rune) bool {
		return r == '/' || r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}):
		return fmt.Errorf("%.64q is not %s", text, what)
	}
	return nil
}

// truncate shortens untrusted text to limit bytes, at a character boundary.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
