package evictions

import (
	"fmt"
	"math"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/kill"
	"jettison/stats"
)

// SignalFields returns log fields of a met threshold.
func SignalFields(m eviction.Met) []any {
	if !m.Observed.OK { // the previous process began the eviction
		return []any{"signal", m.Threshold.Signal}
	}
	return []any{"signal", m.Threshold.Signal, "observed", m.Observed.Value, "threshold", m.Limit}
}

// describe returns the log fields of a decision: signal, observed, threshold, victim, reason.
func (v *Evictions) describe(d *eviction.Decision, e *eviction.Eviction) []any {
	met := eviction.Met{}
	if !e.Local() {
		met = d.Signal
	}
	return v.logFields(e, met, d.Reason, [2]int{len(d.Ranking), len(d.Protected)})
}

// fields returns the log fields of an eviction in progress.
func (v *Evictions) fields(u *progress) []any {
	return v.logFields(u.life.Eviction(), *u.life.Met(), u.reason, u.counts)
}

func (v *Evictions) logFields(e *eviction.Eviction, met eviction.Met, reason string,
	counts [2]int) []any {
	p := &e.Pod
	out := []any{"signal", e.Signal}
	if met.Threshold.Signal != "" {
		out = SignalFields(met)
	}
	return append(out, "victim", v.o.Pods.Name(p.PodRef), "uid", p.PodRef.UID, "qos", p.QOSClass,
		"cgroup", p.Cgroup,
		"reason", reason, "candidates", counts[0], "protected", counts[1])
}

// row is one pod of a ranking in the log.
type row struct {
	Pod string `json:"pod"`
	QOS string `json:"qos"`
	// Usage of the short resource in its unit, or of memory if protected; -1: not measured
	Usage      int64  `json:"usage"`
	Request    int64  `json:"request"`              // lower bound of the request; -1: unknown
	RequestMax int64  `json:"requestMax,omitempty"` // upper bound, if greater
	DecidedBy  string `json:"decidedBy,omitempty"`
	Protection string `json:"protected,omitempty"`

	ref stats.PodReference
}

// String formats a row for a text log.
func (r row) String() string {
	request := fmt.Sprint(r.Request)
	if r.RequestMax > 0 {
		request = fmt.Sprintf("%d..%d", r.Request, r.RequestMax)
	}
	return fmt.Sprintf("%s(%s usage=%d request=%s %s%s)", r.Pod, r.QOS, r.Usage, request, r.DecidedBy,
		r.Protection)
}

// setRequest sets the bounds of a request.
func (r *row) setRequest(q stats.Opt[stats.Range]) {
	if !q.OK {
		r.Request = -1
		return
	}
	r.Request = int64(min(q.V.Min, math.MaxInt64))
	if q.V.Max > q.V.Min {
		r.RequestMax = int64(min(q.V.Max, math.MaxInt64))
	}
}

// rankingRows limits the pods of a ranking in one log line.
const rankingRows = 10

// ranking returns the first pods of the ranking, then protected pods.
func (v *Evictions) ranking(d *eviction.Decision) []row {
	var rows []row
	for i := range d.Ranking {
		c := &d.Ranking[i].Candidate
		if len(rows) == rankingRows {
			return rows
		}
		r := row{ref: c.Pod.PodRef, QOS: string(c.Pod.QOSClass), Usage: -1,
			DecidedBy: d.Ranking[i].DecidedBy}
		if c.Keys.Measured {
			r.Usage = int64(min(c.Keys.Usage, math.MaxInt64))
		}
		r.setRequest(c.Keys.Request)
		rows = append(rows, r)
	}
	for i := range d.Protected {
		c := &d.Protected[i]
		if len(rows) == rankingRows {
			return rows
		}
		r := row{ref: c.Pod.PodRef, QOS: string(c.Pod.QOSClass), Usage: -1, Protection: c.Protected}
		if w := c.Pod.Memory.WorkingSetBytes; w.OK {
			r.Usage = int64(min(w.V, math.MaxInt64))
		}
		r.setRequest(c.Pod.MemoryRequest)
		rows = append(rows, r)
	}
	return rows
}

// resolveNames sets the current display names of a ranking's pods.
func (v *Evictions) resolveNames(rows []row) []row {
	for i := range rows {
		rows[i].Pod = v.o.Pods.Name(rows[i].ref)
	}
	return rows
}

// report logs an eviction with a known outcome and adds it to the history.
func (v *Evictions) report(now time.Time, u *progress) {
	l := u.life
	e := l.Eviction()
	back := l.Outcome() == eviction.OutcomeBack
	fields := append(v.fields(u), v.times(now, u, back)...)
	if o := v.o.Manager.Observed(e.Signal); o.OK {
		fields = append(fields, "available", o.Value)
	}
	fields = append(fields, "killedAtMonotonic", l.Killed().Monotonic, "message", e.Message,
		"ranking", v.resolveNames(u.ranking))
	fields = append(fields, reclaimFields(u.reclaim)...)
	if u.killErr != nil {
		fields = append(fields, "killError", u.killErr)
	}
	//log: A pod was evicted. The keys give the threshold, the victim with the reason for its choice,
	//  the duration of each phase, and the start of the ranking. If the signal did not recover, the
	//  last duration is "not recovered".
	v.o.Log.Info("evicted", append(fields, api.EventEviction.Attr())...)
	v.advise(now, u, back)
	v.history = append(v.history, api.Evicted{
		Time: l.Began().Time, Pod: e.Pod.PodRef, Signal: e.Signal, Reason: e.Reason, Message: e.Message,
		Explained: u.reason, Back: back,
	})
	if len(v.history) > historySize {
		v.history = v.history[1:]
	}
}

// times returns log fields with the durations of an eviction's phases.
func (v *Evictions) times(now time.Time, u *progress, back bool) (fields []any) {
	l := u.life
	began, emptied := l.Killed().Time, l.Emptied().Time
	if began.IsZero() {
		began = l.Began().Time
		if !emptied.IsZero() {
			fields = append(fields, "stopToEmpty", emptied.Sub(began).Round(time.Microsecond))
		}
	} else {
		if since := l.Met().Since; !since.IsZero() {
			fields = append(fields, "crossedToKill", began.Sub(since).Round(time.Microsecond))
		}
		if !emptied.IsZero() { // otherwise a later attempt replaced it before that was known
			fields = append(fields, "killToEmpty", emptied.Sub(began).Round(time.Microsecond))
		}
	}
	effect := any("not recovered")
	if back {
		effect = now.Sub(began).Round(time.Microsecond)
	}
	switch e := l.Eviction(); {
	case e.Local(), e.Planned():
		return fields
	case e.Disk():
		return append(fields, "stopToDiskBack", effect)
	}
	return append(fields, "killToMemoryBack", effect)
}

// advise adds the duration of an eviction to the headroom advice.
func (v *Evictions) advise(now time.Time, u *progress, back bool) {
	l := u.life
	killed, met := l.Killed().Time, l.Met()
	if !killed.IsZero() && !met.Since.IsZero() {
		// Other evictions had to wait for a grace period or another victim.
		if own := !l.Resumed() && l.Eviction().Signal == stats.SignalMemoryAvailable &&
			met.Threshold.Hard(); own && met.Since.After(v.lastKill) {
			v.o.Advice.RecordReaction(killed.Sub(met.Since))
		}
		v.lastKill = killed
	}
	// The unmount, not the kill, frees shared memory, so such an eviction measures no kill.
	if back && l.Eviction().Signal == stats.SignalMemoryAvailable && !killed.IsZero() &&
		!l.Resumed() && !l.HasSharedMemory() {
		v.o.Advice.RecordRelease(now.Sub(killed))
	}
}

// RecordReaction records the duration of a look and a kill without an eviction.
func (v *Evictions) RecordReaction(took time.Duration) { v.o.Advice.RecordReaction(took) }

// OnTested logs the result of a self-test of the kill ladder, and records the duration of a kill.
func (v *Evictions) OnTested(r *kill.Report) {
	for _, step := range r.Steps {
		if step.Outcome == kill.Works && step.Step == kill.CgroupKill.String() {
			v.o.Advice.RecordRelease(step.Took)
		}
	}
	if !r.Kills() {
		//log: Neither cgroup.kill nor signals work here. Only the container runtime can end a pod, which
		//  takes longer under memory pressure.
		//do: See the keys for the error of each step. Give the agent the privileges and mounts that the
		//  installation guide lists.
		v.o.Log.Error("self-test found no working kill step",
			append(r.Log(), api.EventEviction.Attr())...)
		return
	}
	//log: The agent tried each step of the kill ladder. The keys give the result of each.
	v.o.Log.Info("self-test finished", append(r.Log(), api.EventEviction.Attr())...)
}

// Advise logs a warning if a hard threshold of memory.available, in bytes, is smaller than the safe
// one on this node.
func (v *Evictions) Advise(threshold uint64) { v.o.Advice.Advise(threshold) }

// Headroom returns the advice on a hard threshold of memory.available, in bytes.
func (v *Evictions) Headroom(threshold uint64) api.HeadroomState {
	return v.o.Advice.State(threshold)
}

// reclaimFields returns log fields with the proactive reclaim before an eviction. Unknown values
// are omitted: refaults are watched for seconds, and the reclaim's own line contains them.
func reclaimFields(s *api.ProactiveReclaim) (out []any) {
	if s == nil {
		return nil
	}
	out = []any{"reclaimRequested", s.Asked}
	if s.Freed != nil {
		out = append(out, "reclaimFreed", *s.Freed)
	}
	if s.Refaulted != nil {
		out = append(out, "reclaimRefaulted", *s.Refaulted)
	}
	return append(out, "reclaimStopped", s.Stopped)
}
