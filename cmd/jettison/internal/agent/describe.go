package agent

import (
	"fmt"
	"time"

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

// describe are the fields of a decision's log line: signal, observed, threshold, victim, reason.
func (a *agent) describe(d eviction.Decision) []any {
	v := &d.Evictions[0].Pod
	return append(signalFields(d.Signal), "victim", a.name(v.PodRef), "uid", v.PodRef.UID, "qos", v.QOSClass, "cgroup", v.Cgroup,
		"reason", d.Reason, "candidates", len(d.Ranking), "protected", len(d.Protected))
}

func signalFields(m eviction.Met) []any {
	return []any{"signal", m.Threshold.Signal, "observed", m.Observed.Available, "threshold", m.Limit}
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
	Usage      int64  `json:"usage"`   // working set in bytes; -1: not measured
	Request    int64  `json:"request"` // bytes; -1: unknown
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
func (a *agent) ranking(d eviction.Decision) []row {
	var rows []row
	add := func(c eviction.Candidate, by string) {
		if len(rows) == rankingRows {
			return
		}
		r := row{ref: c.Pod.PodRef, QOS: string(c.Pod.QOSClass), Usage: -1, Request: -1, DecidedBy: by, Protection: c.Protected}
		if w := c.Pod.Memory.WorkingSetBytes; w.OK {
			r.Usage = int64(w.V)
		}
		if q := c.Pod.MemoryRequest; q.OK {
			r.Request = int64(q.V.Max)
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
