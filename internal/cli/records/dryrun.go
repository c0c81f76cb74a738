package records

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
)

// idTime is the time layout at the start of an ID.
const idTime = "20060102T150405"

// wouldEvict summarizes the records of one pod and threshold.
type wouldEvict struct {
	Pod       api.Victim `json:"pod"`
	Signal    string     `json:"signal"`
	Threshold string     `json:"threshold,omitempty"`
	Times     int        `json:"times"` // shortages
	First     time.Time  `json:"first"`
	Last      time.Time  `json:"last"`
	// Decided is the observation at the start of the newest record.
	Decided *api.Reading `json:"decided,omitempty"`
	Reason  string       `json:"reason,omitempty"` // why this pod was chosen, in the newest record
}

// lastDecided returns the time of the last decision in a record.
func lastDecided(r *api.Record) time.Time {
	if r.LastDecided.After(r.Began.Time) {
		return r.LastDecided
	}
	return r.Began.Time
}

// summarize returns the records of dry runs by pod and threshold, the most frequent first.
func summarize(all []api.Record) (out []wouldEvict) {
	type key struct{ uid, signal, threshold string }
	at := map[key]int{}
	for i := range all {
		r := &all[i]
		k := key{r.Pod.UID, string(r.Signal), r.Threshold}
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k] = n
			out = append(out, wouldEvict{Signal: k.signal, Threshold: k.threshold, First: r.Began.Time})
		}
		s := &out[n]
		s.Times += 1 + r.Repeats
		s.Last = lastDecided(r)
		s.Pod, s.Decided, s.Reason = r.Pod, r.Decided, r.Reason
	}
	slices.SortStableFunc(out, func(a, b wouldEvict) int {
		return cmp.Or(b.Times-a.Times, b.Last.Compare(a.Last))
	})
	return out
}

// summary prints the pods that dry runs would have evicted.
func (q *query) summary(stdout *terminal.Screen, all []api.Record) error {
	pods := summarize(all)
	if q.format.Data() {
		return output.EncodeAll(q.format, stdout, pods)
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "POD", Cut: true}, {Name: "THRESHOLD", Cut: true}, {Name: "TIMES", Right: true},
		{Name: "FIRST", Drop: 1}, {Name: "LAST"}, {Name: "OBSERVED", Right: true, Drop: 2},
		{Name: "QOS", Wide: true}, {Name: "UID", Wide: true}, {Name: "WHY", Wide: true},
	}}
	for i := range pods {
		p := &pods[i]
		observed := ""
		if p.Decided != nil && p.Decided.Available != nil {
			observed = p.Decided.Text
		}
		t.Add(p.Pod.Title(), cmp.Or(p.Threshold, p.Signal), fmt.Sprint(p.Times), output.Time(p.First),
			output.Time(p.Last), observed, string(p.Pod.QOSClass), p.Pod.UID, p.Reason)
	}
	return t.Print(stdout, q.format == output.AsWide)
}
