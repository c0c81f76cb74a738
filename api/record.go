package api

import (
	"cmp"
	"time"

	"jettison/stats"
)

// RecordVersion is the version of a Record's format. New fields do not change it.
const RecordVersion = 1

// AnnotationEvicted is the annotation of a pod that holds the ID of its eviction's record. A bridge
// writes it with the pod's status.
const AnnotationEvicted = "jettison/evicted"

// Record describes one eviction. The file of records contains it twice: with OutcomeRunning when
// the eviction begins, and complete when its outcome is known. The later line replaces the earlier
// one. Amounts are in the signal's unit: bytes, tasks or inodes. A nil amount is unknown.
type Record struct {
	Version int    `json:"version"`          // RecordVersion
	ID      string `json:"id"`               // the text order of IDs is their order in time
	BootID  string `json:"bootId,omitempty"` // boot that monotonic stamps belong to
	Agent   string `json:"agent,omitempty"`  // version of the agent
	Pod     Victim `json:"pod"`

	Signal stats.Signal `json:"signal"`
	// memory.available<100Mi; empty: the pod's own limit
	Threshold          string `json:"threshold,omitempty"`
	ThresholdGrace     string `json:"thresholdGrace,omitempty"` // of a soft threshold: 1m30s
	GracePeriodSeconds int64  `json:"gracePeriodSeconds"`
	Reason             string `json:"reason,omitempty"` // why this pod was chosen
	Message            string `json:"message,omitempty"`

	// StatusReason is the reason of the pod's status and event, in the kubelet's words: Evicted, or
	// Preempting if the pod was stopped for a critical one.
	StatusReason string `json:"statusReason,omitempty"`
	// Annotations of the event: starved_resource, offending_containers and their usage.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Disruption: the status gets the condition DisruptionTarget.
	Disruption bool `json:"disruption,omitempty"`

	Crossed *Reading `json:"crossed,omitempty"` // first reading that met the threshold; nil: unknown
	Decided *Reading `json:"decided,omitempty"` // reading that caused the decision
	After   *Reading `json:"after,omitempty"`   // reading when the outcome became known
	Began   Stamp    `json:"began"`
	Killed  Stamp    `json:"killed,omitzero"`  // zero: stopped gently, or nothing was killed
	Emptied Stamp    `json:"emptied,omitzero"` // when no process was left; zero: unknown
	// when the runtime had stopped the sandbox; zero: not stopped, or unknown
	Cleaned Stamp `json:"cleaned,omitzero"`

	Ranking Ranking `json:"ranking"`
	Steps   []Step  `json:"steps,omitempty"` // of the kill ladder, in order

	Predicted *uint64 `json:"predicted,omitempty"` // amount that the eviction was expected to free
	// amount that the eviction freed; always nil for pressure signals
	Released  *uint64 `json:"released,omitempty"`
	Reclaimed *uint64 `json:"reclaimed,omitempty"` // bytes of memory reclaimed before the eviction
	// the proactive reclaim before the eviction; nil: none
	Squeeze *ProactiveReclaim `json:"squeeze,omitempty"`

	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
	// end of the pod's hold-off; zero: it had none
	HoldOffUntil time.Time `json:"holdOffUntil,omitzero"`
	// Restarted is the creation time of the first container of the pod that ran after the pod's end.
	// Zero: no container within an hour. The pod's end is Emptied, or Began if Emptied is unknown.
	Restarted time.Time `json:"restarted,omitzero"`
	// Complete: the record is complete, except for Restarted and the later fields of
	// ProactiveReclaim.
	Complete bool `json:"over,omitempty"`
	// DryRun: the agent only recorded the eviction. Without --dry-run it would have evicted the pod.
	DryRun bool `json:"dryRun,omitempty"`
	// Repeats counts the later shortages in which a dry run would have evicted the same pod for the
	// same signal, within a day of Began. LastDecided is the time of the last such decision, up to ten
	// minutes old; zero: only the decision at Began is known.
	Repeats     int       `json:"repeats,omitempty"`
	LastDecided time.Time `json:"lastDecided,omitzero"`
}

// WasKilled reports whether the victim was killed instead of only stopped gently.
func (r *Record) WasKilled() bool { return r.Killed.Known() }

// EndBegan returns the time of the kill, or of the stop for a victim that was not killed.
func (r *Record) EndBegan() Stamp {
	if r.WasKilled() {
		return r.Killed
	}
	return r.Began
}

// Outcome is the result of an eviction.
type Outcome string

// Outcomes.
const (
	OutcomeRunning   Outcome = "running"   // not known yet, or the agent was killed
	OutcomeBack      Outcome = "back"      // recovered: enough is available again
	OutcomeNotBack   Outcome = "notBack"   // the pod is dead, but not enough was freed in time
	OutcomeUndying   Outcome = "undying"   // the pod did not die
	OutcomeAbandoned Outcome = "abandoned" // the agent was restarted and did not continue
	OutcomeDryRun    Outcome = "dryRun"    // nothing was done
	// OutcomeLost marks a line in the file of records that describes no eviction: records up to its
	// ID are missing.
	OutcomeLost Outcome = "lost"
)

// outcomeWords maps outcomes to texts for people.
var outcomeWords = map[Outcome]string{
	OutcomeRunning: "running", OutcomeBack: "recovered", OutcomeNotBack: "not recovered in time",
	OutcomeUndying:   "pod did not die",
	OutcomeAbandoned: "abandoned at restart", OutcomeDryRun: "dry run, not evicted",
}

// String returns the outcome as a text for people.
func (o Outcome) String() string { return cmp.Or(outcomeWords[o], string(o)) }

// Victim is the pod that was evicted.
type Victim struct {
	UID        string         `json:"uid"`
	Namespace  string         `json:"namespace,omitempty"`
	Name       string         `json:"name,omitempty"`
	QOSClass   stats.QOSClass `json:"qos,omitempty"`
	SandboxIDs []string       `json:"sandboxIds,omitempty"` // of the runtime, newest first
	Cgroup     string         `json:"cgroup,omitempty"`     // path below the root of the hierarchy
}

// Title returns the pod's namespace and name, or its UID if they are unknown.
func (v *Victim) Title() string {
	return Title(stats.PodReference{UID: v.UID, Namespace: v.Namespace, Name: v.Name})
}

// Title returns a pod's namespace and name, or its UID if they are unknown.
func Title(pod stats.PodReference) string {
	if pod.Name == "" {
		return "uid:" + pod.UID
	}
	return pod.Namespace + "/" + pod.Name
}

// Stamp is an instant on both clocks.
type Stamp = stats.Stamp

// Reading is an observation of the signal, in its unit.
type Reading struct {
	Stamp
	Available *uint64 `json:"available,omitempty"` // nil: not observed
	Capacity  *uint64 `json:"capacity,omitempty"`
	Text      string  `json:"text,omitempty"`   // Available for people: 98Mi
	Reason    string  `json:"reason,omitempty"` // why it was not observed
}

// Ranking is the beginning of the ranking that the decision used, the victim first.
type Ranking struct {
	Rows      []Candidate `json:"rows,omitempty"`
	More      int         `json:"more,omitempty"`      // candidates after these
	Protected int         `json:"protected,omitempty"` // pods that are never victims
}

// Candidate is one row of a ranking.
type Candidate struct {
	Pod      string         `json:"pod"` // Title
	UID      string         `json:"uid"`
	QOSClass stats.QOSClass `json:"qos,omitempty"`
	// the key that ranks it after the previous row
	DecidedBy string `json:"decidedBy,omitempty"`
	Keys      string `json:"keys,omitempty"` // all keys, for people
}

// ProactiveReclaim describes the proactive reclaim before an eviction: the memory that the agent
// requested from the kernel, and the memory that the kernel reclaimed from pods.
type ProactiveReclaim struct {
	// Signal is the signal that ran short. The crossing of another signal may have stopped the
	// reclaim.
	Signal stats.Signal  `json:"signal"`
	Kind   string        `json:"kind"` // kind of reclaimed memory: anonymous memory, page cache
	Began  time.Time     `json:"began"`
	Took   time.Duration `json:"tookNs"`
	Asked  uint64        `json:"asked"` // bytes requested from the kernel
	// bytes by which the cgroups of the pods shrank
	Freed *uint64 `json:"freed,omitempty"`
	// bytes that the pods faulted in again soon after; nil: unknown, or not yet known
	Refaulted *uint64 `json:"refaulted,omitempty"`
	Stopped   bool    `json:"stopped"` // the eviction stopped it before its end
}

// Step is one step of the kill ladder.
type Step struct {
	Name string `json:"name"`
	// its end, CLOCK_MONOTONIC in nanoseconds
	Monotonic time.Duration `json:"monotonicNs,omitempty"`
	Error     string        `json:"error,omitempty"`
	// number of processes, cgroups or containers
	N int `json:"n,omitempty"`
}
