// Package records keeps what an eviction was: a bounded file that outlives restarts, and a line in the kernel's log, where a post-mortem
// finds it. It keeps what the next process needs to go on, too.
//
//	record.go   Record: what is kept of one eviction
//	file.go     the file of records: appended to, bounded
//	read.go     reading it back, whatever it has become
//	kmsg.go     the line in the kernel's log
//	state.go    State: what a restart must not lose
//	writer.go   Writer: the goroutine that all of this is written by
package records

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	"unicode"

	"jettison/eviction"
	"jettison/stats"
)

// Version of a Record's and a State's format. A field may be added without a new one.
const Version = 1

// Record is one eviction. A file has it twice: with the outcome running when the eviction begins, and whole when its outcome is known;
// the later line counts. Amounts are in the signal's unit, bytes, tasks or inodes (docs/reference/formats.md); a nil one is unknown.
type Record struct {
	Version int    `json:"version"`
	ID      string `json:"id"`               // of NewID: by time, sortable
	BootID  string `json:"bootId,omitempty"` // monotonic stamps are of that boot
	Agent   string `json:"agent,omitempty"`  // its version
	Pod     Pod    `json:"pod"`

	Signal             stats.Signal `json:"signal"`
	Threshold          string       `json:"threshold,omitempty"` // memory.available<100Mi; empty: the pod's own limit
	ThresholdGrace     string       `json:"thresholdGrace,omitempty"`
	GracePeriodSeconds int64        `json:"gracePeriodSeconds"`
	Reason             string       `json:"reason,omitempty"` // why this pod, in words
	Message            string       `json:"message,omitempty"`

	Crossed *Reading `json:"crossed,omitempty"` // the first one that met the threshold; nil: not known
	Decided *Reading `json:"decided,omitempty"`
	After   *Reading `json:"after,omitempty"` // when the outcome was known
	Began   Stamp    `json:"began"`
	Killed  Stamp    `json:"killed,omitzero"` // zero: it was stopped gently, or nothing was killed
	Emptied Stamp    `json:"emptied,omitzero"`

	Ranking Ranking `json:"ranking"`
	Steps   []Step  `json:"steps,omitempty"` // of the kill ladder, in order

	Predicted *uint64  `json:"predicted,omitempty"` // what its end was expected to return
	Released  *uint64  `json:"released,omitempty"`  // what it returned; nil for a share of stalled time, too
	Reclaimed *uint64  `json:"reclaimed,omitempty"` // bytes of memory that were reclaimed before
	Squeeze   *Squeeze `json:"squeeze,omitempty"`   // how; nil: nothing was asked for

	Outcome      Outcome   `json:"outcome"`
	Error        string    `json:"error,omitempty"`
	HoldOffUntil time.Time `json:"holdOffUntil,omitzero"` // until when the pod is not let in again
}

// Outcome is what became of an eviction.
type Outcome string

// Outcomes.
const (
	Running   Outcome = "running"   // not known yet, or the agent was killed
	Back      Outcome = "back"      // enough is available again
	NotBack   Outcome = "notBack"   // the pod is dead, but not enough came back in time
	Undying   Outcome = "undying"   // the pod did not die
	Abandoned Outcome = "abandoned" // the agent was restarted meanwhile and did not go on
)

// words of an outcome for people.
var words = map[Outcome]string{
	Running: "running", Back: "back", NotBack: "not back in time", Undying: "did not die", Abandoned: "abandoned at a restart",
}

// String is the outcome in words.
func (o Outcome) String() string { return cmp.Or(words[o], string(o)) }

// Pod is the victim.
type Pod struct {
	UID        string         `json:"uid"`
	Namespace  string         `json:"namespace,omitempty"`
	Name       string         `json:"name,omitempty"`
	QOSClass   stats.QOSClass `json:"qos,omitempty"`
	SandboxIDs []string       `json:"sandboxIds,omitempty"`
	Cgroup     string         `json:"cgroup,omitempty"` // path below the root
}

// Title is the pod's namespace and name, or its UID where these are not known.
func (p *Pod) Title() string {
	if p.Name == "" {
		return "uid:" + p.UID
	}
	return p.Namespace + "/" + p.Name
}

// Stamp is an instant on both clocks; kill.Stamp converts to it. Monotonic is CLOCK_MONOTONIC, by which times between two stamps of one
// boot are true whatever becomes of the wall clock.
type Stamp struct {
	Time      time.Time     `json:"time,omitzero"`
	Monotonic time.Duration `json:"monotonicNs,omitempty"`
}

// Since is the time from an earlier stamp to this one, by the monotonic clock where both have it; !ok: one of them is not known, or the
// order is not true.
func (s Stamp) Since(before Stamp) (d time.Duration, ok bool) {
	switch {
	case s.Monotonic > 0 && before.Monotonic > 0:
		d = s.Monotonic - before.Monotonic
	case s.Time.IsZero() || before.Time.IsZero():
		return 0, false
	default:
		d = s.Time.Sub(before.Time)
	}
	return d, d >= 0
}

// Reading is what was observed of the signal.
type Reading struct {
	Stamp
	Available *uint64 `json:"available,omitempty"`
	Capacity  *uint64 `json:"capacity,omitempty"`
	Text      string  `json:"text,omitempty"`   // available as people write it: 98Mi
	Reason    string  `json:"reason,omitempty"` // why it was not observed
}

// ReadingOf makes a Reading of an observation that a threshold is judged by.
func ReadingOf(t eviction.Threshold, o stats.Observation, at Stamp) *Reading {
	r := &Reading{Stamp: at, Reason: o.Reason}
	if o.OK {
		available, capacity := o.Available, o.Capacity
		r.Available, r.Capacity, r.Reason = &available, &capacity, ""
		r.Text = eviction.Met{Threshold: t, Observed: o}.ObservedText()
	}
	return r
}

// Ranking is the start of the order that was decided by, the victim first.
type Ranking struct {
	Rows      []Row `json:"rows,omitempty"`
	More      int   `json:"more,omitempty"`      // candidates after these
	Protected int   `json:"protected,omitempty"` // pods that are never victims
}

// Squeeze is the reclaim of cold memory before an eviction: what pods were asked for, and what came of it.
type Squeeze struct {
	Signal    stats.Signal  `json:"signal"` // that was running short; a crossing of another one may have stopped it
	Kind      string        `json:"kind"`   // anonymous memory, page cache
	Began     time.Time     `json:"began"`
	Took      time.Duration `json:"tookNs"`
	Asked     uint64        `json:"asked"`               // bytes that the kernel was asked for
	Freed     *uint64       `json:"freed,omitempty"`     // by how much the cgroups of the pods shrank
	Refaulted *uint64       `json:"refaulted,omitempty"` // bytes that the pods read in again within the next seconds; nil: not known, or not yet
	Stopped   bool          `json:"stopped"`             // for the eviction, before its end
}

// Row is one candidate.
type Row struct {
	Pod       string         `json:"pod"`
	UID       string         `json:"uid"`
	QOSClass  stats.QOSClass `json:"qos,omitempty"`
	DecidedBy string         `json:"decidedBy,omitempty"` // the key by which the one before comes first
	Keys      string         `json:"keys,omitempty"`      // all of them, in words
}

// Step is one step of the kill ladder.
type Step struct {
	Name      string        `json:"name"`
	Monotonic time.Duration `json:"monotonicNs,omitempty"` // when it was over, CLOCK_MONOTONIC
	Error     string        `json:"error,omitempty"`
	N         int           `json:"n,omitempty"` // how many processes, cgroups or containers it was about
}

// Bounds of a record. What comes from outside is cut.
const (
	maxRows  = 10
	maxSteps = 64
	maxName  = 253
	maxText  = 2048
	maxKeys  = 512
	maxIDs   = 16
)

// NewID is the identity of the record of an eviction that begins at a time: sorted as text, IDs are in the order of time.
func NewID(at time.Time, uid string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return fmt.Sprintf("%s-%04x", at.UTC().Format("20060102T150405.000000Z"), h.Sum32()&0xffff)
}

// Begin makes the record of an eviction that has just begun, of the decision that it follows from; it shares nothing with it. name says
// how a pod is called where the decision does not know its name; nil: nobody knows better. What it cannot know is for the caller:
// Crossed, Reclaimed, Squeeze, HoldOffUntil, and where nothing is killed yet, killed is zero.
func Begin(d *eviction.Decision, e *eviction.Eviction, began, killed Stamp, name func(stats.PodReference) string) Record {
	p := &e.Pod
	r := Record{
		Version: Version, ID: NewID(began.Time, p.PodRef.UID), Outcome: Running, Began: began, Killed: killed,
		Pod: Pod{
			UID: p.PodRef.UID, Namespace: p.PodRef.Namespace, Name: p.PodRef.Name, QOSClass: p.QOSClass,
			SandboxIDs: append([]string(nil), p.SandboxIDs[:min(len(p.SandboxIDs), maxIDs)]...), Cgroup: p.Cgroup,
		},
		Signal: e.Signal, GracePeriodSeconds: e.GracePeriodSeconds, Reason: d.Reason, Message: e.Message,
		Ranking: Ranking{More: max(0, len(d.Ranking)-maxRows), Protected: len(d.Protected)},
	}
	if e.Returns > 0 {
		returns := e.Returns
		r.Predicted = &returns
	}
	if t := d.Signal.Threshold; !e.Local() && t.Signal != "" {
		r.Threshold = t.String()
		if t.Grace > 0 {
			r.ThresholdGrace = t.Grace.String()
		}
		at := Stamp{Time: d.Time}
		if back := began.Time.Sub(d.Time); began.Monotonic > 0 && back >= 0 && back < began.Monotonic {
			at.Monotonic = began.Monotonic - back
		}
		r.Decided = ReadingOf(t, d.Signal.Observed, at)
	}
	for _, c := range d.Ranking[:min(len(d.Ranking), maxRows)] {
		row := Row{UID: c.Pod.PodRef.UID, QOSClass: c.Pod.QOSClass, DecidedBy: c.DecidedBy, Keys: c.Explain()}
		ref := &Pod{UID: row.UID, Namespace: c.Pod.PodRef.Namespace, Name: c.Pod.PodRef.Name}
		if row.Pod = ref.Title(); ref.Name == "" && name != nil {
			row.Pod = name(c.Pod.PodRef)
		}
		r.Ranking.Rows = append(r.Ranking.Rows, row)
	}
	return r
}

// bound cuts what is too long and makes every text one line that a terminal may be shown. It writes to no slice that the caller has.
func (r *Record) bound() {
	for _, f := range []struct {
		text *string
		most int
	}{
		{&r.ID, 64}, {&r.BootID, 64}, {&r.Agent, 64}, {&r.Pod.UID, maxName}, {&r.Pod.Namespace, maxName}, {&r.Pod.Name, maxName},
		{(*string)(&r.Pod.QOSClass), 64}, {&r.Pod.Cgroup, maxText}, {(*string)(&r.Signal), 64}, {&r.Threshold, maxName},
		{&r.ThresholdGrace, 64}, {&r.Reason, maxText}, {&r.Message, maxText}, {(*string)(&r.Outcome), 64}, {&r.Error, maxText},
	} {
		*f.text = oneLine(*f.text, f.most)
	}
	for _, reading := range []**Reading{&r.Crossed, &r.Decided, &r.After} {
		if *reading != nil {
			clean := **reading
			clean.Text, clean.Reason = oneLine(clean.Text, 64), oneLine(clean.Reason, maxText)
			*reading = &clean
		}
	}
	if s := r.Squeeze; s != nil {
		clean := *s
		clean.Signal, clean.Kind = stats.Signal(oneLine(string(s.Signal), 64)), oneLine(s.Kind, 64)
		r.Squeeze = &clean
	}
	ids := make([]string, 0, min(len(r.Pod.SandboxIDs), maxIDs))
	for _, id := range r.Pod.SandboxIDs[:cap(ids)] {
		ids = append(ids, oneLine(id, maxName))
	}
	rows := make([]Row, 0, min(len(r.Ranking.Rows), maxRows))
	for _, row := range r.Ranking.Rows[:cap(rows)] {
		rows = append(rows, Row{
			Pod: oneLine(row.Pod, 2*maxName+1), UID: oneLine(row.UID, maxName), QOSClass: stats.QOSClass(oneLine(string(row.QOSClass), 64)),
			DecidedBy: oneLine(row.DecidedBy, 64), Keys: oneLine(row.Keys, maxKeys),
		})
	}
	steps := make([]Step, 0, min(len(r.Steps), maxSteps))
	for _, s := range r.Steps[:cap(steps)] {
		s.Name, s.Error = oneLine(s.Name, 64), oneLine(s.Error, 256)
		steps = append(steps, s)
	}
	r.Pod.SandboxIDs, r.Ranking.Rows, r.Steps = ids, rows, steps
}

// oneLine is a text from outside as it may stand in a line and on a terminal: what cannot be printed is a question mark.
func oneLine(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) { // IsPrint knows one space, U+0020
			return '?'
		}
		return r
	}, text)
}
