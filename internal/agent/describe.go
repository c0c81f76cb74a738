package agent

import (
	"fmt"
	"math"
	"time"

	"jettison/internal/kill"

	"jettison/eviction"
	"jettison/stats"
)

// repeat logs what may be said again and again at most every repeatLog.
func (a *agent) repeat(key string, log func()) {
	if now := time.Now(); now.Sub(a.said[key]) >= repeatLog {
		if len(a.said) > 1000 {
			clear(a.said)
		}
		a.said[key] = now
		log()
	}
}

// describe are the fields of an eviction's log line: signal, observed, threshold, victim, reason.
func (a *agent) describe(d *eviction.Decision, e *eviction.Eviction) []any {
	met := metOf(d, e)
	return a.evictionFields(e, &met, d.Reason, [2]int{len(d.Ranking), len(d.Protected)})
}

func (a *agent) fields(u *underway) []any {
	return a.evictionFields(u.Eviction(), u.Met(), u.reason, u.counts)
}

func (a *agent) evictionFields(e *eviction.Eviction, met *eviction.Met, reason string, counts [2]int) []any {
	v := &e.Pod
	out := []any{"signal", e.Signal}
	if met.Threshold.Signal != "" {
		out = signalFields(*met)
	}
	return append(out, "victim", a.name(v.PodRef), "uid", v.PodRef.UID, "qos", v.QOSClass, "cgroup", v.Cgroup,
		"reason", reason, "candidates", counts[0], "protected", counts[1])
}

func signalFields(m eviction.Met) []any {
	if !m.Observed.OK { // of an eviction that another process has begun
		return []any{"signal", m.Threshold.Signal}
	}
	return []any{"signal", m.Threshold.Signal, "observed", m.Observed.Value, "threshold", m.Limit}
}

// name is a pod's namespace and name; where the runtime had not told of it yet, what it has told since counts.
func (a *agent) name(p stats.PodReference) string {
	if p.Name == "" && a.pods[p.UID] != nil {
		p = a.pods[p.UID].PodRef
	}
	if p.Name == "" {
		return "uid:" + p.UID
	}
	return p.Namespace + "/" + p.Name
}

// row of a ranking in the log.
type row struct {
	Pod        string `json:"pod"`
	QOS        string `json:"qos"`
	Usage      int64  `json:"usage"`   // of what is short, in its unit; of one that is protected, of memory; -1: not measured
	Request    int64  `json:"request"` // likewise; -1: unknown
	DecidedBy  string `json:"decidedBy,omitempty"`
	Protection string `json:"protected,omitempty"`

	ref stats.PodReference
}

// String is a row in a text log.
func (r row) String() string {
	return fmt.Sprintf("%s(%s usage=%d request=%d %s%s)", r.Pod, r.QOS, r.Usage, r.Request, r.DecidedBy, r.Protection)
}

// rankingRows bounds what one log line carries of a ranking.
const rankingRows = 10

// ranking is the start of the order, then who is protected.
func (a *agent) ranking(d *eviction.Decision) []row {
	var rows []row
	add := func(c eviction.Candidate, by string) {
		if len(rows) == rankingRows {
			return
		}
		r := row{ref: c.Pod.PodRef, QOS: string(c.Pod.QOSClass), Usage: -1, Request: -1, DecidedBy: by, Protection: c.Protected}
		switch w := c.Pod.Memory.WorkingSetBytes; {
		case c.Protected == "" && c.Keys.Measured:
			r.Usage = int64(min(c.Keys.Usage, math.MaxInt64))
		case c.Protected != "" && w.OK:
			r.Usage = int64(min(w.V, math.MaxInt64))
		}
		switch q := c.Pod.MemoryRequest; {
		case c.Protected == "" && c.Keys.Request.OK:
			r.Request = int64(min(c.Keys.Request.V, math.MaxInt64))
		case c.Protected != "" && q.OK:
			r.Request = int64(min(q.V.Max, math.MaxInt64))
		}
		rows = append(rows, r)
	}
	for _, r := range d.Ranking {
		add(r.Candidate, r.DecidedBy)
	}
	for _, c := range d.Protected {
		add(c, "")
	}
	return rows
}

// named is a ranking with the names of its pods as they are known by now.
func (a *agent) named(rows []row) []row {
	for i := range rows {
		rows[i].Pod = a.name(rows[i].ref)
	}
	return rows
}

// Evicted is one eviction whose effect is known.
type Evicted struct {
	Time      time.Time          `json:"time"` // when it began
	Pod       stats.PodReference `json:"pod"`
	Signal    stats.Signal       `json:"signal"`
	Reason    string             `json:"reason"`
	Message   string             `json:"message"`
	Explained string             `json:"explained"`
	Back      bool               `json:"back"` // the threshold was not met any more
}

// historySize bounds the evictions that are remembered.
const historySize = 32

// report logs an eviction and remembers it.
func (a *agent) report(now time.Time, u *underway, back bool) {
	fields := a.fields(u)
	killed := kill.Stamp(u.Killed())
	if killed == (kill.Stamp{}) {
		killed.Time = u.Began().Time
		fields = append(fields, "stopToEmpty", u.Emptied().Time.Sub(u.Began().Time).Round(time.Microsecond))
	} else {
		if !u.Met().Since.IsZero() {
			if !u.Resumed() && u.Eviction().Signal == stats.SignalMemoryAvailable && u.Met().Threshold.Hard() && u.Met().Since.After(a.lastKill) { // else it had to wait, for its grace period or for another victim
				a.advice.react(killed.Time.Sub(u.Met().Since))
			}
			a.lastKill = killed.Time
			fields = append(fields, "crossedToKill", killed.Time.Sub(u.Met().Since).Round(time.Microsecond))
		}
		fields = append(fields, "killToEmpty", u.Emptied().Time.Sub(killed.Time).Round(time.Microsecond))
	}
	switch {
	case u.Eviction().Local():
	case back && !u.Eviction().Disk():
		if u.Eviction().Signal == stats.SignalMemoryAvailable && !u.Killed().Time.IsZero() && !u.Resumed() {
			a.advice.release(now.Sub(killed.Time))
		}
		fields = append(fields, "killToMemoryBack", now.Sub(killed.Time).Round(time.Microsecond))
	case back:
		fields = append(fields, "stopToDiskBack", now.Sub(killed.Time).Round(time.Microsecond))
	case u.Eviction().Disk():
		fields = append(fields, "stopToDiskBack", "not back")
	default:
		fields = append(fields, "killToMemoryBack", "not back")
	}
	if o := a.manager.Observed(u.Eviction().Signal); o.OK {
		fields = append(fields, "available", o.Value)
	}
	fields = append(fields, "killedAtMonotonic", killed.Monotonic, "message", u.Eviction().Message, "ranking", a.named(u.ranking))
	fields = append(fields, squeezeFields(u)...)
	if u.killErr != nil {
		fields = append(fields, "killError", u.killErr)
	}
	a.log.Info("evicted", fields...)
	a.advise()
	if a.recorder != nil {
		_ = a.lookAtPods(now, memoryLook) // the effect; what is wrong is logged by decisions
		a.record(now, memoryLook, true)
	}
	a.history = append(a.history, Evicted{
		Time: u.Began().Time, Pod: u.Eviction().Pod.PodRef, Signal: u.Eviction().Signal, Reason: u.Eviction().Reason, Message: u.Eviction().Message,
		Explained: u.reason, Back: back,
	})
	if len(a.history) > historySize {
		a.history = a.history[1:]
	}
}
