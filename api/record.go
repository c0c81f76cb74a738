package api

import (
	"cmp"
	"time"

	"jettison/stats"
)

// RecordVersion is the version of a Record's format. A field may be added without a new one.
const RecordVersion = 1

// AnnotationEvicted of a pod names the record of its eviction. A bridge writes it with the pod's
// status.
const AnnotationEvicted = "jettison/evicted"

// Record is one eviction. The file of records has it twice: with OutcomeRunning when the eviction
// begins, and whole when its outcome is known; the later line counts. Amounts are in the signal's
// unit: bytes, tasks or inodes. A nil one is unknown.
type Record struct {
	Version int    `json:"version"`          // RecordVersion
	ID      string `json:"id"`               // sorted as text, IDs are in the order of time
	BootID  string `json:"bootId,omitempty"` // monotonic stamps are of that boot
	Agent   string `json:"agent,omitempty"`  // its version
	Pod     Victim `json:"pod"`

	Signal stats.Signal `json:"signal"`
	// memory.available<100Mi; empty: the pod's own limit
	Threshold          string `json:"threshold,omitempty"`
	ThresholdGrace     string `json:"thresholdGrace,omitempty"` // of a soft threshold: 1m30s
	GracePeriodSeconds int64  `json:"gracePeriodSeconds"`
	Reason             string `json:"reason,omitempty"` // why this pod, in words
	Message            string `json:"message,omitempty"`

	// What the pod's status and event say of it, in the kubelet's words. Disruption: the status gets
	// the condition DisruptionTarget. Evicted; Preempting: it went for a critical pod
	StatusReason string `json:"statusReason,omitempty"`
	// of the event: starved_resource, offending_containers and their usage
	Annotations map[string]string `json:"annotations,omitempty"`
	Disruption  bool              `json:"disruption,omitempty"`

	Crossed *Reading `json:"crossed,omitempty"` // the first one that met the threshold; nil: not known
	Decided *Reading `json:"decided,omitempty"` // the one that the decision was made by
	After   *Reading `json:"after,omitempty"`   // when the outcome was known
	Began   Stamp    `json:"began"`
	Killed  Stamp    `json:"killed,omitzero"`  // zero: it was stopped gently, or nothing was killed
	Emptied Stamp    `json:"emptied,omitzero"` // when no process was left; zero: not known
	// when the runtime had ended its sandbox; zero: it has not, or that is not known
	Cleaned Stamp `json:"cleaned,omitzero"`

	Ranking Ranking `json:"ranking"`
	Steps   []Step  `json:"steps,omitempty"` // of the kill ladder, in order

	Predicted *uint64 `json:"predicted,omitempty"` // what its end was expected to return
	// what it returned; nil for a share of stalled time, too
	Released  *uint64 `json:"released,omitempty"`
	Reclaimed *uint64 `json:"reclaimed,omitempty"` // bytes of memory that were reclaimed before
	// how they were; nil: the kernel was asked for nothing
	Squeeze *Squeeze `json:"squeeze,omitempty"`

	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
	// until when the pod is not let in again; zero: it was not held off
	HoldOffUntil time.Time `json:"holdOffUntil,omitzero"`
	// Restarted is when the first container of the pod was made that was seen to run after its end;
	// zero: none was, within an hour. The end is when no process was left, or when it began where that
	// is not known.
	Restarted time.Time `json:"restarted,omitzero"`
	// no more comes of it, but for Restarted and what is known of Squeeze
	Over bool `json:"over,omitempty"`
	// nothing was done: this is what an agent with --dry-run would have done
	DryRun bool `json:"dryRun,omitempty"`
}

// WasKilled tells that the victim was killed, and not only stopped gently.
func (r *Record) WasKilled() bool { return r.Killed.Known() }

// EndBegan is when the victim's end began: the kill, or the stop.
func (r *Record) EndBegan() Stamp {
	if r.WasKilled() {
		return r.Killed
	}
	return r.Began
}

// Outcome is what became of an eviction.
type Outcome string

// Outcomes.
const (
	OutcomeRunning   Outcome = "running"   // not known yet, or the agent was killed
	OutcomeBack      Outcome = "back"      // enough is available again
	OutcomeNotBack   Outcome = "notBack"   // the pod is dead, but not enough came back in time
	OutcomeUndying   Outcome = "undying"   // the pod did not die
	OutcomeAbandoned Outcome = "abandoned" // the agent was restarted meanwhile and did not go on
	OutcomeDryRun    Outcome = "dryRun"    // nothing was done
	// OutcomeLost is of no eviction: in the file of records such a line stands for records up to its
	// ID that are missing.
	OutcomeLost Outcome = "lost"
)

// outcomeWords are for people.
var outcomeWords = map[Outcome]string{
	OutcomeRunning: "running", OutcomeBack: "back", OutcomeNotBack: "not back in time",
	OutcomeUndying:   "did not die",
	OutcomeAbandoned: "abandoned at a restart", OutcomeDryRun: "dry run, not evicted",
}

// String is the outcome in words.
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

// Title is the pod's namespace and name, or its UID where these are not known.
func (v *Victim) Title() string {
	return Title(stats.PodReference{UID: v.UID, Namespace: v.Namespace, Name: v.Name})
}

// Title is a pod's namespace and name, or its UID where these are not known.
func Title(pod stats.PodReference) string {
	if pod.Name == "" {
		return "uid:" + pod.UID
	}
	return pod.Namespace + "/" + pod.Name
}

// Stamp is an instant on both clocks.
type Stamp = stats.Stamp

// Reading is what was observed of the signal, in its unit.
type Reading struct {
	Stamp
	Available *uint64 `json:"available,omitempty"` // nil: not observed
	Capacity  *uint64 `json:"capacity,omitempty"`
	Text      string  `json:"text,omitempty"`   // available as people write it: 98Mi
	Reason    string  `json:"reason,omitempty"` // why it was not observed
}

// Ranking is the start of the order that was decided by, the victim first.
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
	// the key by which the one before comes first
	DecidedBy string `json:"decidedBy,omitempty"`
	Keys      string `json:"keys,omitempty"` // all of them, in words
}

// Squeeze is the reclaim of cold memory before an eviction: how much the kernel was asked to take
// from pods, and how much it took.
type Squeeze struct {
	// that was running short; a crossing of another one may have stopped it
	Signal stats.Signal  `json:"signal"`
	Kind   string        `json:"kind"` // anonymous memory, page cache
	Began  time.Time     `json:"began"`
	Took   time.Duration `json:"tookNs"`
	Asked  uint64        `json:"asked"` // bytes that the kernel was asked for
	// bytes by which the cgroups of the pods shrank
	Freed *uint64 `json:"freed,omitempty"`
	// bytes that the pods read in again soon after; nil: not known, or not yet
	Refaulted *uint64 `json:"refaulted,omitempty"`
	Stopped   bool    `json:"stopped"` // for the eviction, before its end
}

// Step is one step of the kill ladder.
type Step struct {
	Name string `json:"name"`
	// when it was over, CLOCK_MONOTONIC in nanoseconds
	Monotonic time.Duration `json:"monotonicNs,omitempty"`
	Error     string        `json:"error,omitempty"`
	// how many processes, cgroups or containers it was about
	N int `json:"n,omitempty"`
}
