package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Report lists the evictions of a cluster since a time.
type Report struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Nodes counts the selected nodes, Answered those whose records were read. The evictions of the
	// others are from events, which the API server keeps for an hour by default.
	Nodes    int `json:"nodes"`
	Answered int `json:"answered"`
	// Unanswered lists the other nodes by reason.
	Unanswered []Unanswered `json:"unanswered,omitempty"`
	// Warnings has the nodes whose agents skipped or lost records, and their messages.
	Warnings  map[string]string `json:"warnings,omitempty"`
	Evictions []Eviction        `json:"evictions"` // oldest first
	Totals    Totals            `json:"totals"`
}

// Unanswered is a reason for which records of nodes could not be read.
type Unanswered struct {
	Reason string   `json:"reason"`
	Nodes  []string `json:"nodes"`
}

// Totals counts evictions by the values of a field, the most frequent first.
type Totals struct {
	Evicted    int     `json:"evicted"`
	WouldEvict int     `json:"wouldEvict"` // of dry runs
	Nodes      []Total `json:"nodes"`
	Namespaces []Total `json:"namespaces"`
	Signals    []Total `json:"signals"`
	Pods       []Total `json:"pods"`
}

// Total is the number of evictions with a value.
type Total struct {
	Name       string    `json:"name"`
	Evicted    int       `json:"evicted"`
	WouldEvict int       `json:"wouldEvict"`
	Last       time.Time `json:"last"`
}

// Count sorts the evictions by time and counts them.
func (r *Report) Count() {
	slices.SortFunc(r.Evictions, func(a, b Eviction) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.Node, b.Node), strings.Compare(a.Record, b.Record))
	})
	t := Totals{}
	for i := range r.Evictions {
		if e := &r.Evictions[i]; e.DryRun {
			t.WouldEvict += e.Times
		} else {
			t.Evicted += e.Times
		}
	}
	t.Nodes = count(r.Evictions, func(e *Eviction) string { return e.Node })
	t.Namespaces = count(r.Evictions, func(e *Eviction) string { return cmp.Or(e.Namespace, "unknown") })
	t.Signals = count(r.Evictions, func(e *Eviction) string { return e.Signal })
	t.Pods = count(r.Evictions, func(e *Eviction) string { return Title(e) })
	r.Totals = t
}

// Title returns the namespace and name of an eviction's pod.
func Title(e *Eviction) string {
	if e.Namespace == "" {
		return cmp.Or(e.Pod, "unknown")
	}
	return e.Namespace + "/" + e.Pod
}

func count(all []Eviction, name func(*Eviction) string) []Total {
	at, out := map[string]int{}, []Total{}
	for i := range all {
		e := &all[i]
		key := name(e)
		n, known := at[key]
		if !known {
			n = len(out)
			at[key], out = n, append(out, Total{Name: key})
		}
		if e.DryRun {
			out[n].WouldEvict += e.Times
		} else {
			out[n].Evicted += e.Times
		}
		if e.Last.After(out[n].Last) {
			out[n].Last = e.Last
		}
	}
	slices.SortFunc(out, func(a, b Total) int {
		return cmp.Or(cmp.Compare(b.Evicted+b.WouldEvict, a.Evicted+a.WouldEvict),
			strings.Compare(a.Name, b.Name))
	})
	return out
}

// AddUnanswered adds a node whose records could not be read.
func (r *Report) AddUnanswered(node, reason string) {
	i := slices.IndexFunc(r.Unanswered, func(u Unanswered) bool { return u.Reason == reason })
	if i < 0 {
		i, r.Unanswered = len(r.Unanswered), append(r.Unanswered, Unanswered{Reason: reason})
	}
	r.Unanswered[i].Nodes = append(r.Unanswered[i].Nodes, node)
	slices.Sort(r.Unanswered[i].Nodes)
}
