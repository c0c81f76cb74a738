package oracle

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The recorded properties of an object.
const (
	ready     = "Ready"
	evicts    = "NoExecute taints"
	schedules = "NoSchedule taints"
	excludes  = "excluded"
	labelled  = "labels"
	onNode    = "node"
	doubted   = "doubt"

	gone = "gone"
)

// pressures are the conditions besides Ready that silence changes.
var pressures = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}

// facet is one property of an object.
type facet struct{ object, what string }

func nodeIs(name, what string) facet { return facet{"Node/" + name, what} }
func podIs(key, what string) facet   { return facet{"Pod/" + key, what} }

// frame is the value of a facet from a time on.
type frame struct {
	at    time.Duration
	value string
}

// film has the values of all facets over time. Values of zero duration are dropped.
type film map[facet][]frame

func (f film) set(at time.Duration, k facet, value string) {
	list := f[k]
	for len(list) > 0 && list[len(list)-1].at >= at {
		list = list[:len(list)-1]
	}
	if len(list) == 0 || list[len(list)-1].value != value {
		list = append(list, frame{at, value})
	}
	f[k] = list
}

// is returns the value of a facet at a time; empty: none yet.
func (f film) is(k facet, at time.Duration) string {
	i, _ := slices.BinarySearchFunc(f[k], at+1, func(e frame, at time.Duration) int { return cmp.Compare(e.at, at) })
	if i == 0 {
		return ""
	}
	return f[k][i-1].value
}

// changed reports whether a facet changed between two times.
func (f film) changed(k facet, from, to time.Duration) bool {
	return slices.ContainsFunc(f[k], func(e frame) bool { return e.at >= from && e.at <= to })
}

// turned reports whether a facet changed from one value to another between two times.
func (f film) turned(k facet, since, until time.Duration, from, to string) bool {
	for i := 1; i < len(f[k]); i++ {
		if e := f[k][i]; e.at >= since && e.at <= until && f[k][i-1].value == from && e.value == to {
			return true
		}
	}
	return false
}

func (f film) seeNode(at time.Duration, name string, n *v1.Node) {
	if n == nil {
		for k := range f {
			if k.object == "Node/"+name {
				f.set(at, k, gone)
			}
		}
		return
	}
	for _, t := range append([]v1.NodeConditionType{v1.NodeReady}, pressures...) {
		status := ""
		if c := condition(n, t); c != nil {
			status = string(c.Status)
		}
		f.set(at, nodeIs(name, string(t)), status)
	}
	f.set(at, nodeIs(name, evicts), taintsWith(n, v1.TaintEffectNoExecute))
	f.set(at, nodeIs(name, schedules), taintsWith(n, v1.TaintEffectNoSchedule))
	_, excluded := n.Labels["node.kubernetes.io/exclude-disruption"]
	f.set(at, nodeIs(name, excludes), map[bool]string{true: "yes", false: "no"}[excluded])
	f.set(at, nodeIs(name, labelled), n.Labels["beta.kubernetes.io/os"])
}

// taintsWith returns the keys of a node's taints with an effect, without those that users set.
func taintsWith(n *v1.Node, effect v1.TaintEffect) string {
	var keys []string
	for _, t := range n.Spec.Taints {
		if t.Effect == effect && t.Key != maintenance {
			keys = append(keys, strings.TrimPrefix(t.Key, "node.kubernetes.io/"))
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, ",")
}

func (f film) seePod(at time.Duration, key string, p *v1.Pod) {
	if p == nil {
		f.set(at, podIs(key, ready), gone)
		f.set(at, podIs(key, onNode), gone)
		return
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			f.set(at, podIs(key, ready), string(c.Status))
		}
	}
	f.set(at, podIs(key, onNode), p.Spec.NodeName)
}

// run is an interval in which a facet differs.
type run struct {
	facet
	from, to     time.Duration
	ours, theirs string // at first
}

// differences returns the intervals of all differences: first of Ready, then of the NoExecute
// taints, because these cause others. An interval ends where another object replaces its own.
func differences(ours, theirs film, line *timeline) (out []run) {
	end := line.end
	all := maps.Clone(ours)
	maps.Copy(all, theirs)
	for k := range all {
		times := []time.Duration{end}
		for _, e := range slices.Concat(ours[k], theirs[k]) {
			times = append(times, min(e.at, end))
		}
		for _, e := range line.troubles {
			if e.what == replaced && e.object == k.object {
				times = append(times, min(e.at+happens, end))
			}
		}
		slices.Sort(times)
		differs, r := false, run{}
		for _, at := range slices.Compact(times) {
			x, y := ours.is(k, at), theirs.is(k, at)
			if differs && (x == y || at == end || line.happened(replaced, k.object, at-happens, at-happens)) {
				differs, r.to = false, at
				out = append(out, r)
			}
			if !differs && x != y && at < end {
				differs, r = true, run{facet: k, from: at, ours: x, theirs: y}
			}
		}
	}
	rank := func(r run) int {
		switch {
		case strings.HasPrefix(r.object, "Pod/"):
			return 3
		case r.what == ready:
			return 0
		case r.what == evicts:
			return 1
		}
		return 2
	}
	slices.SortFunc(out, func(a, b run) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.from, b.from), cmp.Compare(a.object+a.what, b.object+b.what))
	})
	return out
}
