package evictions

import (
	"maps"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/kill"
	"jettison/internal/node/records"
)

const (
	// dryRunGap is the time without a decision on the same pod and signal that ends a shortage.
	dryRunGap = time.Minute
	// dryRunUpdate is the time between two updates of a record while a shortage lasts.
	dryRunUpdate = 10 * time.Minute
	// dryRunPeriod is the time that one record covers.
	dryRunPeriod = 24 * time.Hour
	// maxDryRuns bounds the records that a dry run continues.
	maxDryRuns = 256
)

// dryRun is the record of an eviction that a dry run would have made, and of its repetitions.
type dryRun struct {
	record api.Record // as last stored
	began  time.Time  // of the record
	last   time.Time  // last decision
	stored time.Time  // time of the last decision in record
}

// dryRun logs and records the eviction that a dry run would have made.
func (v *Evictions) dryRun(d *eviction.Decision, e *eviction.Eviction) {
	v.o.Log.Repeat("dry run: "+e.Pod.PodRef.UID,
		//log: Dry run: the agent would have evicted this pod. It changes nothing.
		func() { v.o.Log.Info("would evict", append(v.describe(d, e), api.EventEviction.Attr())...) })
	v.recordDryRun(d, e)
}

// recordDryRun counts each shortage in which a dry run would have evicted a pod for a signal. One
// record covers a day of them, so that the bounded file of records covers weeks.
func (v *Evictions) recordDryRun(d *eviction.Decision, e *eviction.Eviction) {
	key := e.Pod.PodRef.UID + "/" + string(e.Signal)
	r := v.dryRuns[key]
	shortage := r == nil || d.Time.Sub(r.last) > dryRunGap
	if shortage {
		v.counts.Outcomes.Add(1, string(e.Signal), string(api.OutcomeDryRun), string(e.Pod.QOSClass),
			"true")
	}
	if r == nil || d.Time.Sub(r.began) >= dryRunPeriod {
		v.forgetDryRuns(d.Time)
		r = &dryRun{began: d.Time, last: d.Time, stored: d.Time,
			record: records.Begin(d, e, stampAt(d.Time), kill.Stamp{}, v.o.Pods.Name)}
		if m := d.Signal; !e.Local() && m.Threshold.Signal != "" {
			r.record.Crossed = records.ReadingOf(m.Threshold, m.First, stampAt(m.Since))
		}
		v.dryRuns[key] = r
		v.o.Keeper.RecordDryRun(&r.record)
		return
	}
	r.last = d.Time
	if shortage {
		r.record.Repeats++
	}
	if shortage || d.Time.Sub(r.stored) >= dryRunUpdate {
		r.stored, r.record.LastDecided = d.Time, d.Time.Round(0)
		v.o.Keeper.RecordDryRun(&r.record)
	}
}

// forgetDryRuns drops old records, so that one more can be added.
func (v *Evictions) forgetDryRuns(now time.Time) {
	maps.DeleteFunc(v.dryRuns, func(_ string, r *dryRun) bool {
		return now.Sub(r.began) >= dryRunPeriod
	})
	for len(v.dryRuns) >= maxDryRuns {
		oldest := ""
		for key, r := range v.dryRuns {
			if oldest == "" || r.last.Before(v.dryRuns[oldest].last) {
				oldest = key
			}
		}
		delete(v.dryRuns, oldest)
	}
}
