package oracle

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The improvements that can explain a difference. docs/operate/node-lifecycle.md documents each.
const (
	byRestart  = "a restart takes no taint away and starts no clock anew"
	byClock    = "a heartbeat that goes back is a sign of life, and the silence after it is noticed"
	byTimer    = "a change is acted on as it comes, a deadline when it is there"
	byDoubt    = "silence of everything is doubted"
	byRecord   = "records go with their nodes"
	byQueue    = "tokens are for nodes that need a taint, in the order in which they failed"
	byOne      = "a zone whose rate was 0 goes on, also where that is at 1 a second"
	byExcluded = "a zone whose nodes are all excluded keeps its rate"
	byKubelet  = "a start marks no pods of a node that speaks"
	bySilence  = "a silence marks the pods of a node that was not ready"
	byAdded    = "deadlines follow TimeAdded"
	bySwap     = "a taint that is swapped for the other keeps its time"
	byChange   = "deadlines follow every change of taints or tolerations"
	byFinished = "pods that are finished or going are left alone"
	byUID      = "a pod is deleted by its UID"
	byNodeGone = "pods of a node that is gone are not the taints' affair"
)

// One side of a comparison.
const (
	here = iota
	there
	sides
)

// comparison has the first half of one timeline, and the results of both programs.
type comparison struct {
	testing.TB
	line   *timeline
	films  [sides]film
	tokens [sides]map[string][]time.Duration
	rates  [sides]map[string][]rate // by zone
	down   [sides][]frame           // whether all zones are down
	found  []finding
	brief  []finding // ignored differences of Ready: not longer than upstream's delay
}

// finding is a difference, and the improvement that explains it; empty: none.
type finding struct {
	run
	why string
}

func compare(t testing.TB, line *timeline, o *ours, u *theirs) *comparison {
	c := &comparison{TB: t, line: line, films: [sides]film{o.film, u.film}, tokens: [sides]map[string][]time.Duration{o.tokens, u.tokens}}
	c.judgeZones()
	for _, r := range differences(o.film, u.film, line) {
		if r.to-r.from <= c.slack() {
			c.short(r)
		} else if r.object != "" && r.what != onNode && r.what != excludes {
			c.found = append(c.found, finding{r, c.explain(r)})
		}
	}
	return c
}

// short records an ignored difference: other differences may follow from it.
func (c *comparison) short(r run) {
	if name, isNode := strings.CutPrefix(r.object, "Node/"); isNode && r.what == ready {
		c.brief = append(c.brief, finding{r, cmp.Or(c.health(r, name), byTimer)})
	}
}

// slack returns upstream's largest delay from polling: one period until it learns of a node, one
// more because it treats the lease that it forgets at each heartbeat as renewed, and one more until
// it notices the silence.
func (c *comparison) slack() time.Duration { return 3*c.line.config.NodeMonitorPeriod + time.Second }

func (c *comparison) explain(r run) string {
	name, isNode := strings.CutPrefix(r.object, "Node/")
	switch {
	case !isNode:
		return c.pod(r, strings.TrimPrefix(r.object, "Pod/"))
	case r.what == ready:
		return c.health(r, name)
	case r.what == evicts:
		return c.evicted(r, name)
	}
	return c.because(name, r.from) // conditions and their taints follow Ready
}

// because returns why a node's condition Ready differs near a time; empty: it does not.
func (c *comparison) because(name string, at time.Duration) string {
	for _, f := range c.found {
		if f.facet == nodeIs(name, ready) && f.from <= at+c.slack() && f.to >= at-c.slack() {
			return f.why
		}
	}
	return ""
}

// briefly returns why a node's condition Ready differs at a time, or did until upstream's last pass
// over taints, for at most upstream's delay; empty: it does not.
func (c *comparison) briefly(name string, at time.Duration) string {
	for _, f := range c.brief {
		if f.facet == nodeIs(name, ready) && f.from <= at && at <= f.to+2*step {
			return f.why
		}
	}
	return ""
}

// health returns why the two treat a node as silent at different times.
func (c *comparison) health(r run, name string) string {
	const unknown = "Unknown"
	grace, slack := c.line.config.NodeMonitorGracePeriod, c.slack()
	late := there // the side that does not report the silence yet
	if r.ours != unknown {
		late = here
	}
	covered, why := r.from, ""
	if from, to := c.line.unseen(name); r.ours == unknown && from <= r.from+slack && r.from < to {
		covered, why = to+slack, byClock
	}
	// Its clocks were reset, any number of times.
	for _, e := range c.resets(late) {
		if e.at <= covered+slack && e.at+grace+slack > covered {
			if covered = e.at + grace + slack; why == "" {
				why = c.reset(late, e)
			}
		}
	}
	if covered < r.to {
		return ""
	}
	return why
}

// resets returns when the clocks of a side were reset: at a start of upstream, and at the end of a
// full disruption.
func (c *comparison) resets(side int) (out []frame) {
	for _, e := range c.down[side] {
		if e.value == "no" && e.at > 0 {
			out = append(out, e)
		}
	}
	for _, t := range c.line.troubles {
		if t.what == restarted && side == there {
			out = append(out, frame{t.at, restarted})
		}
	}
	slices.SortFunc(out, func(a, b frame) int { return cmp.Compare(a.at, b.at) })
	return out
}

func (c *comparison) reset(side int, e frame) string {
	if e.value == restarted {
		return byRestart
	}
	return c.disordered(side, e.at)
}

// disordered returns why only one side has treated all zones as down until a time.
func (c *comparison) disordered(side int, until time.Duration) string {
	list := c.down[side]
	i := slices.IndexFunc(list, func(e frame) bool { return e.at == until })
	from := time.Duration(0)
	if i > 0 {
		from = list[i-1].at
	}
	other := c.down[sides-1-side]
	if until-from <= c.slack() || slices.ContainsFunc(other, func(e frame) bool { return (e.at - until).Abs() <= c.slack() }) {
		return byTimer
	}
	if side == there && c.skips("", from, until) {
		return byClock
	}
	return c.anyBecause(from, until)
}

// anyBecause returns why any node's condition Ready differs between two times.
func (c *comparison) anyBecause(from, to time.Duration) string {
	for _, f := range c.found {
		if f.what == ready && strings.HasPrefix(f.object, "Node/") && f.from <= to && f.to >= from {
			return f.why
		}
	}
	return ""
}

// pod returns why only one side marks a pod.
func (c *comparison) pod(r run, key string) string {
	node := c.films[here].is(podIs(key, onNode), r.from)
	if why := c.because(node, r.from); why != "" {
		return why
	}
	says := func(side int) string { return c.films[side].is(nodeIs(node, ready), r.from) }
	arrived := c.line.happened(replaced, r.object, r.from-c.slack(), r.from)
	held := c.doubtBefore(r.from)
	switch {
	case r.what != ready:
	case r.ours == "True" && r.theirs == "False" && c.inDoubt(node, r):
		return byDoubt
	case r.theirs == "False" && c.line.begun(r.from-c.slack(), r.from) && says(there) != "True":
		return byKubelet // it may process the pod before or after the node
	case r.ours == "False" && r.theirs == "True" && c.films[here].turned(nodeIs(node, ready), held, r.from, "False", "Unknown"):
		return bySilence
	case r.ours == "False" && c.line.begun(held-c.slack(), r.from) && says(here) == "Unknown":
		return byRestart // a pod that no side marked before
	case r.ours == "False" && r.theirs == "True" && says(there) == "True" &&
		c.films[here].turned(nodeIs(node, ready), held, r.from, "True", "Unknown") &&
		c.line.happened(removed, "Node/"+node, r.from-happens, r.from+c.slack()):
		return byTimer // the node is deleted before upstream's look
	case arrived && c.films[here].changed(nodeIs(node, ready), r.from-c.slack(), r.from+c.slack()):
		return byTimer
	case r.theirs == "False" && c.line.happened(removed, "Node/"+node, 0, r.from):
		return byRecord
	}
	return ""
}

// inDoubt reports whether the core did not mark a pod because the silence of its node was in doubt,
// all the time that it differs. The pods of a deleted node are not marked.
func (c *comparison) inDoubt(node string, r run) bool {
	for at := r.from; at < r.to; at += look {
		if at > r.from && c.films[here].is(nodeIs(node, ready), at) == gone {
			return true
		}
		if c.films[here].is(nodeIs(node, ready), at) != "Unknown" || c.films[here].is(facet{what: doubted}, at) != "yes" {
			return false
		}
	}
	return true
}

// doubtBefore returns the start of the doubt that ended at a time, or that time: marks wait for the
// end.
func (c *comparison) doubtBefore(at time.Duration) time.Duration {
	list := c.films[here][facet{what: doubted}]
	i := slices.IndexFunc(list, func(e frame) bool { return e.at == at && e.value == "no" })
	if i <= 0 {
		return at
	}
	return list[i-1].at
}
