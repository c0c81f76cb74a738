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

// Saved is what a Manager knows that a restart must not lose: the evictions that are not over,
// which pods were killed and did not die, which were evicted lately, what the breaker has counted,
// and what shortages of disks are held against. Since when thresholds are met and conditions hold
// is not in it: the next look tells what is met, but not that it was so without a break. Times are
// absolute.
type Saved struct {
	Lives   []SavedLife    `json:"lives,omitempty"`
	Aside   []SavedAside   `json:"setAside,omitempty"`
	Evicted []SavedEvicted `json:"evicted,omitempty"`
	Breaker []SavedBreaker `json:"breaker,omitempty"`
	Shmem   *SavedPool     `json:"shmem,omitempty"` // nil: nothing is awaited of shared memory
	// absent in the files of agents before these were kept: not known
	Disks []SavedDisk `json:"disks,omitempty"`
	// Futile is what an agent before this one counted, by what was short: it is read and not written.
	Futile map[string]int `json:"futile,omitempty"`
}

// SavedBreaker is what the breaker has counted for one threshold.
type SavedBreaker struct {
	Signal stats.Signal `json:"signal"`
	Hard   bool         `json:"hard,omitempty"`
	Futile int          `json:"futile"` // evictions in a row that did not help
	// since it stopped: pods by UID, and what each used then; nil: it has not looked
	Known  map[string]uint64 `json:"known,omitzero"`
	Unread bool              `json:"unread,omitempty"` // what some of them used is not known yet
	// what those returned that went in vain, by namespace/name of their maker
	Vain map[string]uint64 `json:"vain,omitempty"`
	// evictions since it stopped that did not help either
	Tries int       `json:"tries,omitempty"`
	Until time.Time `json:"until,omitzero"` // no other one before
	// Stopped is what all pods used when it stopped, and what was left then; absent in the files of
	// agents before it was kept: not known.
	Stopped *SavedTogether `json:"stopped,omitempty"`
}

// SavedDisk is what a shortage of a disk is held against, by one signal.
type SavedDisk struct {
	Signal stats.Signal `json:"signal"`
	// when it was quiet last; zero: it was not seen so
	Quiet time.Time         `json:"quiet,omitzero"`
	Used  uint64            `json:"used,omitempty"` // then, in the signal's unit
	Pods  map[string]uint64 `json:"pods,omitempty"` // what each held then, by UID
	// Unmeasured are the UIDs of those that were there then, and not measured. Absent in the files of
	// agents before these were kept: none.
	Unmeasured []string `json:"unmeasured,omitempty"`
	// since when a shortage is not explained; zero: there is none
	Doubt time.Time `json:"doubt,omitzero"`
	Ended time.Time `json:"ended,omitzero"` // when that shortage did; zero: it has not
}

// SavedLife is a Life. Times are absolute; the monotonic ones are the caller's.
type SavedLife struct {
	Eviction    SavedEviction `json:"eviction"`
	Met         *SavedMet     `json:"met,omitempty"`    // nil: not known, or the pod's own limit
	Record      string        `json:"record,omitempty"` // its ID
	RemoveFiles bool          `json:"removeFiles,omitempty"`
	KillWaits   bool          `json:"killWaits,omitempty"`
	Level       uint64        `json:"level"` // observed when it began, in the signal's unit
	// Awaited, by signal, and what its end is expected to return (Due), and what of that it had when
	// it was measured after the kill (Holds), by what is counted. Absent in the files of agents before
	// these were kept: not known.
	Awaited map[string]SavedAwaited `json:"awaited,omitempty"`
	Due     map[string]uint64       `json:"due,omitempty"`
	Holds   map[string]uint64       `json:"holds,omitempty"`
	Shmem   *SavedShmem             `json:"shmem,omitempty"` // nil: none that is worth waiting for
	// nil: what all pods used when it began is not known
	Together *SavedTogether `json:"together,omitempty"`
	Began    Stamp          `json:"began"`
	Deadline time.Time      `json:"deadline,omitzero"` // the end of its grace period
	Killed   Stamp          `json:"killed,omitzero"`   // zero: it is being stopped gently
	Emptied  Stamp          `json:"emptied,omitzero"`  // zero: not known to be dead
	Clean    bool           `json:"clean,omitempty"`   // the runtime has cleaned up
	Cleaned  Stamp          `json:"cleaned,omitzero"`  // when
	// much of what it returns is shared memory
	Shared   bool   `json:"shared,omitempty"`
	CameBack bool   `json:"cameBack,omitempty"`
	Undying  bool   `json:"undying,omitempty"`
	Gone     bool   `json:"gone,omitempty"`    // nothing is carried out any more
	Settled  bool   `json:"settled,omitempty"` // others do not wait for it any more
	Outcome  string `json:"outcome,omitempty"` // empty: not known
	Untold   bool   `json:"untold,omitempty"`  // and not told to the caller yet
}

// SavedMet is what was observed when an eviction was decided on.
type SavedMet struct {
	Since    time.Time `json:"since,omitzero"` // it was met
	Time     time.Time `json:"time,omitzero"`
	Value    uint64    `json:"value"`
	Capacity uint64    `json:"capacity"` // 0: what was observed is not known
}

// SavedEviction is an Eviction as a file holds it: without what was measured of the pod.
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
}

// SavedPod is who a victim is: enough to tell it from a pod that has its UID now.
type SavedPod struct {
	UID        string         `json:"uid"`
	Namespace  string         `json:"namespace,omitempty"`
	Name       string         `json:"name,omitempty"`
	QOSClass   stats.QOSClass `json:"qos,omitempty"`
	Cgroup     string         `json:"cgroup,omitempty"` // path below the root; empty: none was found
	CgroupDev  uint64         `json:"cgroupDev,omitempty"`
	CgroupIno  uint64         `json:"cgroupIno,omitempty"`
	SandboxIDs []string       `json:"sandboxIds,omitempty"` // newest first
}

// SavedAside is a pod that was killed and did not die.
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

// Bounds of what is saved and taken back. A node has a few hundred pods and evicts one at a time.
const (
	maxLives      = 128
	maxRemembered = 1024 // pods set aside, and pods evicted
	maxSandboxes  = 64
	maxName       = 253 // k8s.io/apimachinery/pkg/util/validation DNS1123SubdomainMaxLength
	maxPath       = 4096
	maxMessage    = 4096
	maxTimes      = 1000
	maxTries      = 5         // likewise
	maxSetAsides  = 5         // after so many the time does not grow any more
	maxSavedGrace = 24 * 3600 // seconds
)

// kindNames name what is short in a file, by kind.
var kindNames = [kinds]string{"memory", "swap", "pids", "bytes", "inodes", "room", "memoryPressure",
	"ioPressure", "cpuPressure"}

// saveEviction is an eviction as a file holds it. It shares nothing with it.
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
		Message:     cut(e.Message, maxMessage),
		Annotations: maps.Clone(e.Annotations), Disruption: e.Disruption, Returns: e.Returns,
	}
}

// Eviction makes one that can be carried out of what was saved of it, or says why it cannot be one.
// It never names a cgroup that is not the pod's own by its name, and none without its identity:
// what is killed by it must be what was ranked.
func (s *SavedEviction) Eviction() (Eviction, error) {
	info, known := signals[s.Signal]
	e := Eviction{
		Signal: s.Signal, GracePeriodSeconds: min(max(s.GracePeriodSeconds, hardGrace), maxSavedGrace),
		Reason:  cut(s.Reason, maxName),
		Message: cut(s.Message, maxMessage), Disruption: s.Disruption, Returns: s.Returns,
		kind: info.kind,
	}
	if e.Planned() {
		e.kind, known = kindRoom, true
	}
	if !known && !e.Local() {
		return Eviction{}, fmt.Errorf("for %.64q, which is no signal", string(s.Signal))
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
	return e, s.Pod.into(&e.Pod)
}

// into makes the pod, as far as it was saved.
func (s *SavedPod) into(p *stats.PodStats) error {
	if err := checkWord("a UID", s.UID); err != nil {
		return err
	}
	for _, w := range [][2]string{{"a namespace", s.Namespace}, {"a name", s.Name}} {
		if err := checkWord(w[0], w[1]); err != nil && w[1] != "" {
			return fmt.Errorf("pod %s: %w", s.UID, err)
		}
	}
	if !slices.Contains([]stats.QOSClass{stats.BestEffort, stats.Burstable, stats.Guaranteed, ""},
		s.QOSClass) {
		return fmt.Errorf("pod %s: %.64q is no QoS class", s.UID, string(s.QOSClass))
	}
	if len(s.SandboxIDs) > maxSandboxes {
		return fmt.Errorf("pod %s: %d sandboxes", s.UID, len(s.SandboxIDs))
	}
	for _, id := range s.SandboxIDs {
		if err := checkWord("the ID of a sandbox", id); err != nil {
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
			return fmt.Errorf("pod %s: %.300q is no path of a cgroup", s.UID, s.Cgroup)
		case !ok || c.UID != s.UID:
			return fmt.Errorf("pod %s: %q is not its cgroup", s.UID, s.Cgroup)
		case s.CgroupIno == 0:
			return fmt.Errorf("pod %s: which cgroup %q was is not known", s.UID, s.Cgroup)
		}
	}
	p.PodRef = stats.PodReference{UID: s.UID, Namespace: s.Namespace, Name: s.Name}
	p.QOSClass, p.Cgroup, p.SandboxIDs, p.Announced = s.QOSClass, s.Cgroup, slices.Clone(s.SandboxIDs),
		s.Name != ""
	p.CgroupID.Dev, p.CgroupID.Ino = s.CgroupDev, s.CgroupIno
	return nil
}

// checkWord holds what names are: something, not too long, on one line, without spaces and slashes.
func checkWord(what, text string) error {
	switch {
	case text == "":
		return errors.New(what + " is missing")
	case len(text) > maxName:
		return fmt.Errorf("%s of %d bytes", what, len(text))
	case strings.ContainsFunc(text, func(r rune) bool {
		return r == '/' || r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}):
		return fmt.Errorf("%.64q is not %s", text, what)
	}
	return nil
}

// cut bounds a text that comes from outside, at a whole character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
