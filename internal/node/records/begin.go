// Package records keeps what an eviction was: a bounded file that outlives restarts, and a line in
// the kernel's log, where a post-mortem finds it. It keeps what the next process needs to go on,
// too. What a record is, package api says.
//
//	begin.go    Begin: the record of an eviction that has just begun
//	bound.go    what of a record is cut, and made one line
//	file.go     the file of records: appended to, bounded
//	read.go     reading it back, whatever it has become
//	kmsg.go     the line in the kernel's log
//	keeper.go   Keeper: what the loop hands over
//	queue.go    Queue: the last ones, and those of the file, for readers
//	state.go    State: what a restart must not lose
//	state1.go   the State of version 1, read by what came after it
//	writer.go   Writer: the goroutine that all of this is written by
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

// Version of a Record's format. A field may be added without a new one. StateVersion is that of a
// State.
const Version = api.RecordVersion

// NewID is the identity of the record of an eviction that begins at a time: sorted as text, IDs are
// in the order of time.
func NewID(at time.Time, uid string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return fmt.Sprintf("%s-%04x", at.UTC().Format(idTime), h.Sum32()&0xffff)
}

// idTime is how an ID begins.
const idTime = "20060102T150405.000000Z"

// Begin makes the record of an eviction that has just begun, of the decision that it follows from;
// it shares nothing with it. name says how a pod is called where the decision does not know its
// name; nil: by its UID. What Begin cannot know is for the caller: Crossed, Reclaimed, Squeeze,
// HoldOffUntil, and where nothing is killed yet, killed is zero.
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

// decidedAt is the instant of a decision on both clocks, as far as that of the eviction's beginning
// tells.
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

// rankingOf is the start of a decision's ranking.
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

// ReadingOf makes a Reading of an observation that a threshold is judged by.
func ReadingOf(t eviction.Threshold, o stats.Observation, at api.Stamp) *api.Reading {
	r := &api.Reading{Stamp: at, Reason: o.Reason}
	if o.OK {
		available, capacity := o.Value, o.Capacity
		r.Available, r.Capacity, r.Reason = &available, &capacity, ""
		r.Text = eviction.Met{Threshold: t, Observed: o}.ObservedText()
	}
	return r
}
