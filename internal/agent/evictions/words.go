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

// SignalFields are what the log says of a threshold that is met.
func SignalFields(m eviction.Met) []any {
	if !m.Observed.OK { // of an eviction that another process has begun
		return []any{"signal", m.Threshold.Signal}
	}
	return []any{"signal", m.Threshold.Signal, "observed", m.Observed.Value, "threshold", m.Limit}
}

// describe are the fields of a decision's line: signal, observed, threshold, victim, reason.
func (v *Evictions) describe(d *eviction.Decision, e *eviction.Eviction) []any {
	met := eviction.Met{}
	if !e.Local() {
		met = d.Signal
	}
	return v.words(e, met, d.Reason, [2]int{len(d.Ranking), len(d.Protected)})
}

// fields are those of an eviction under way.
func (v *Evictions) fields(u *underway) []any {
	return v.words(u.life.Eviction(), *u.life.Met(), u.reason, u.counts)
}

func (v *Evictions) words(e *eviction.Eviction, met eviction.Met, reason string,
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

// row of a ranking in the log.
type row struct {
	Pod string `json:"pod"`
	QOS string `json:"qos"`
	// of what is short, in its unit; of one that is protected, of memory; -1: not measured
	Usage      int64  `json:"usage"`
	Request    int64  `json:"request"`              // likewise, at least; -1: unknown
	RequestMax int64  `json:"requestMax,omitempty"` // at most, where that is more
	DecidedBy  string `json:"decidedBy,omitempty"`
	Protection string `json:"protected,omitempty"`

	ref stats.PodReference
}

// String is a row in a text log.
func (r row) String() string {
	request := fmt.Sprint(r.Request)
	if r.RequestMax > 0 {
		request = fmt.Sprintf("%d..%d", r.Request, r.RequestMax)
	}
	return fmt.Sprintf("%s(%s usage=%d request=%s %s%s)", r.Pod, r.QOS, r.Usage, request, r.DecidedBy,
		r.Protection)
}

// requests fills in what is known of a request.
func (r *row) requests(q stats.Opt[stats.Range]) {
	if !q.OK {
		r.Request = -1
		return
	}
	r.Request = int64(min(q.V.Min, math.MaxInt64))
	if q.V.Max > q.V.Min {
		r.RequestMax = int64(min(q.V.Max, math.MaxInt64))
	}
}

// rankingRows bounds what one log line carries of a ranking.
const rankingRows = 10

// ranking is the start of the order, then who is protected.
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
		r.requests(c.Keys.Request)
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
		r.requests(c.Pod.MemoryRequest)
		rows = append(rows, r)
	}
	return rows
}

// named is a ranking with the names of its pods as they are known by now.
func (v *Evictions) named(rows []row) []row {
	for i := range rows {
		rows[i].Pod = v.o.Pods.Name(rows[i].ref)
	}
	return rows
}

// report logs an eviction whose effect is known, and remembers it.
func (v *Evictions) report(now time.Time, u *underway) {
	l := u.life
	e := l.Eviction()
	back := l.Outcome() == eviction.OutcomeBack
	fields := append(v.fields(u), v.times(now, u, back)...)
	if o := v.o.Manager.Observed(e.Signal); o.OK {
		fields = append(fields, "available", o.Value)
	}
	fields = append(fields, "killedAtMonotonic", l.Killed().Monotonic, "message", e.Message,
		"ranking", v.named(u.ranking))
	fields = append(fields, squeezeFields(u.squeeze)...)
	if u.killErr != nil {
		fields = append(fields, "killError", u.killErr)
	}
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

// times are how long the phases of an eviction took.
func (v *Evictions) times(now time.Time, u *underway, back bool) (fields []any) {
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
		if !emptied.IsZero() { // else a later attempt took its place before that was known
			fields = append(fields, "killToEmpty", emptied.Sub(began).Round(time.Microsecond))
		}
	}
	effect := any("not back")
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

// advise takes how long the eviction took into the advice on headroom.
func (v *Evictions) advise(now time.Time, u *underway, back bool) {
	l := u.life
	killed, met := l.Killed().Time, l.Met()
	if !killed.IsZero() && !met.Since.IsZero() {
		// Else it had to wait, for its grace period or for another victim.
		if own := !l.Resumed() && l.Eviction().Signal == stats.SignalMemoryAvailable &&
			met.Threshold.Hard(); own && met.Since.After(v.lastKill) {
			v.o.Advice.React(killed.Sub(met.Since))
		}
		v.lastKill = killed
	}
	// What lay in shared memory came back when it was unmounted: that is no measure of a kill.
	if back && l.Eviction().Signal == stats.SignalMemoryAvailable && !killed.IsZero() &&
		!l.Resumed() && !l.Shared() {
		v.o.Advice.Release(now.Sub(killed))
	}
}

// Rehearsed takes how long a look and a kill take where nothing has to be evicted.
func (v *Evictions) Rehearsed(took time.Duration) { v.o.Advice.React(took) }

// OnTested logs what a self-test of the kill ladder has found, and takes how long a kill took.
func (v *Evictions) OnTested(r *kill.Report) {
	for _, rung := range r.Rungs {
		if rung.Outcome == kill.Works && rung.Rung == kill.CgroupKill.String() {
			v.o.Advice.Release(rung.Took)
		}
	}
	if !r.Kills() {
		v.o.Log.Error("self-test: no way to kill works here, so that only the runtime can end a pod",
			append(r.Log(), api.EventEviction.Attr())...)
		return
	}
	v.o.Log.Info("self-test", append(r.Log(), api.EventEviction.Attr())...)
}

// Advise logs where a hard threshold of so many bytes for memory.available is smaller than what is
// safe here.
func (v *Evictions) Advise(threshold uint64) { v.o.Advice.Advise(threshold) }

// Headroom is the advice on such a threshold.
func (v *Evictions) Headroom(threshold uint64) api.HeadroomState {
	return v.o.Advice.State(
		threshold)
}

// squeezeFields are what the log says of the reclaim of memory before an eviction. What is not
// known is left out: pods are watched for seconds for what they read in again, and the line of the
// squeeze itself has that.
func squeezeFields(s *api.Squeeze) (out []any) {
	if s == nil {
		return nil
	}
	out = []any{"squeezeAsked", s.Asked}
	if s.Freed != nil {
		out = append(out, "squeezeFreed", *s.Freed)
	}
	if s.Refaulted != nil {
		out = append(out, "squeezeRefaulted", *s.Refaulted)
	}
	return append(out, "squeezeStopped", s.Stopped)
}
