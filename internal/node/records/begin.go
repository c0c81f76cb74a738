// Package records keeps the records of evictions in a bounded file that survives restarts, and
// writes a line for each to the kernel log, for post-mortem analysis. It also keeps the state that
// the next process needs to continue. Package api defines the record.
//
//	begin.go    Begin: the record of an eviction that has just begun
//	bound.go    limits of a record's texts and lists
//	file.go     the file of records: append, limit its size
//	read.go     Read: reads the file, skipping corrupt lines
//	kmsg.go     the line in the kernel log
//	keeper.go   Keeper: the loop's side
//	queue.go    Queue: the last records, and those of the file, for readers
//	state.go    State: the state that survives a restart
//	state1.go   conversion of State version 1
//	writer.go   Writer: the goroutine that writes
package records

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/stats"
)

// Version is the format version of a Record. Adding a field does not change it. StateVersion is the
// version of a State.
const Version = api.RecordVersion

// NewID returns the ID of the record of an eviction that begins at a time. IDs sort as text in the
// order of time.
func NewID(at time.Time, uid string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return fmt.Sprintf("%s-%04x", at.UTC().Format(idTime), h.Sum32()&0xffff)
}

// idTime is the time layout at the start of an ID.
const idTime = "20060102T150405.000000Z"

// Begin returns the record of an eviction that has just begun, from its decision. The record shares
// no memory with the decision. name returns a name for a pod without a name in the decision; nil:
// use its UID. killed is zero if no kill has happened yet. The caller sets Crossed, Reclaimed,
// Squeeze and HoldOffUntil.
func Begin(d *eviction.Decision, e *eviction.Eviction, began, killed api.Stamp,
	name func(stats.PodReference) string) api.Record {
	r := api.Record{
		Version: Version, ID: NewID(began.Time, e.Pod.PodRef.UID), Outcome: api.OutcomeRunning,
		Began: began, Killed: killed,
		Pod: victimOf(&e.Pod), Signal: e.Signal, GracePeriodSeconds: e.GracePeriodSeconds,
		Reason: d.Reason, Message: e.Message,
		Ranking: rankingOf(d, name), StatusReason: e.Reason, Annotations: maps.Clone(e.Annotations),
		Disruption: e.Disruption,
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
		r.Decided = ReadingOf(t, d.Signal.Observed, decidedAt(d.Time, began))
	}
	return r
}

// decidedAt returns the time of a decision on both clocks, derived from the start of the eviction.
func decidedAt(decided time.Time, began api.Stamp) api.Stamp {
	at := api.Stamp{Time: decided}
	if back := began.Time.Sub(decided); began.Monotonic > 0 && back >= 0 && back < began.Monotonic {
		at.Monotonic = began.Monotonic - back
	}
	return at
}

func victimOf(p *stats.PodStats) api.Victim {
	return api.Victim{
		UID: p.PodRef.UID, Namespace: p.PodRef.Namespace, Name: p.PodRef.Name, QOSClass: p.QOSClass,
		SandboxIDs: slices.Clone(p.SandboxIDs[:min(len(p.SandboxIDs), maxIDs)]), Cgroup: p.Cgroup,
	}
}

// rankingOf returns the first maxRows candidates of a decision's ranking.
func rankingOf(d *eviction.Decision, name func(stats.PodReference) string) api.Ranking {
	k := api.Ranking{More: max(0, len(d.Ranking)-maxRows), Protected: len(d.Protected)}
	for _, c := range d.Ranking[:min(len(d.Ranking), maxRows)] {
		ref := c.Pod.PodRef
		row := api.Candidate{Pod: api.Title(ref), UID: ref.UID, QOSClass: c.Pod.QOSClass,
			DecidedBy: c.DecidedBy, Keys: c.Explain()}
		if ref.Name == "" && name != nil {
			row.Pod = name(ref)
		}
		k.Rows = append(k.Rows, row)
	}
	return k
}

// ReadingOf converts the observation of a threshold's signal to a Reading.
func ReadingOf(t eviction.Threshold, o stats.Observation, at api.Stamp) *api.Reading {
	r := &api.Reading{Stamp: at, Reason: o.Reason}
	if o.OK {
		available, capacity := o.Value, o.Capacity
		r.Available, r.Capacity, r.Reason = &available, &capacity, ""
		r.Text = eviction.Met{Threshold: t, Observed: o}.ObservedText()
	}
	return r
}
