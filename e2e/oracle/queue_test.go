package oracle

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// look is the step in which a difference is examined.
const look = 500 * time.Millisecond

// rate is the number of nodes of a zone that are tainted per second from a time on.
type rate struct {
	at       time.Duration
	perS     float64
	excluded bool // no node of it counts
}

// judgeZones computes the rates of both sides from the nodes' states on each.
func (c *comparison) judgeZones() {
	for side := range sides {
		f := c.films[side]
		var times []time.Duration
		for k, frames := range f {
			if k.what == ready && strings.HasPrefix(k.object, "Node/") || k.what == excludes || k.what == doubted {
				for _, e := range frames {
					times = append(times, e.at)
				}
			}
		}
		if side == there {
			for _, name := range c.line.names {
				if from, to := c.line.unseen(name); to > 0 {
					times = append(times, from, to)
				}
			}
		}
		slices.Sort(times)
		c.rates[side] = map[string][]rate{}
		for _, at := range slices.Compact(times) {
			c.judge(side, at)
		}
	}
}

// judge computes the rates of a side at a time.
func (c *comparison) judge(side int, at time.Duration) {
	f := c.films[side]
	up, not, zones := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, name := range c.line.names {
		zone := c.line.zones[name]
		zones[zone] = true
		switch is := f.is(nodeIs(name, ready), at); {
		case is == gone || is == "" || f.is(nodeIs(name, excludes), at) == "yes" || side == there && c.skips(name, at, at):
		case is == "True":
			up[zone]++
		default:
			not[zone]++
		}
	}
	counted, full := 0, 0
	for zone := range zones {
		if up[zone]+not[zone] > 0 {
			counted++
		}
		if up[zone] == 0 && not[zone] > 0 {
			full++
		}
	}
	all := "no"
	if counted > 0 && counted == full {
		all = "yes"
	}
	c.down[side] = append(c.down[side], frame{at, all})
	for zone := range zones {
		r := rate{at, c.rateOf(up[zone], not[zone]), up[zone]+not[zone] == 0}
		if all == "yes" || f.is(facet{what: doubted}, at) == "yes" {
			r.perS = 0
		}
		list := c.rates[side][zone]
		if len(list) == 0 || list[len(list)-1].perS != r.perS || list[len(list)-1].excluded != r.excluded {
			c.rates[side][zone] = append(list, r)
		}
	}
	if n := len(c.down[side]); n > 1 && c.down[side][n-2].value == all {
		c.down[side] = c.down[side][:n-1]
	}
}

// skips reports whether upstream skips a node because its clock was set back, between two times;
// any node if the name is empty.
func (c *comparison) skips(name string, from, to time.Duration) bool {
	return slices.ContainsFunc(c.line.names, func(other string) bool {
		since, until := c.line.unseen(other)
		return (name == "" || other == name) && until > 0 && since <= to && from < until
	})
}

// rateOf returns the documented rate of a zone with such nodes (facts of 1.37.2: ComputeZoneState,
// ReducedQPSFunc).
func (c *comparison) rateOf(up, not int) float64 {
	config := c.line.config
	switch {
	case up == 0 || not <= 2 || float32(not)/float32(up+not) < config.UnhealthyZoneThreshold:
		return config.NodeEvictionRate
	case up+not > int(config.LargeClusterSizeThreshold):
		return config.SecondaryNodeEvictionRate
	}
	return 0
}

// rateAt returns a zone's rate at a time, with its start.
func (c *comparison) rateAt(side int, zone string, at time.Duration) rate {
	list := c.rates[side][zone]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].at <= at {
			return list[i]
		}
	}
	return rate{}
}

// paced checks the core's tokens: none while the zone's rate is 0, and those of a zone at least as
// far apart as the rates require.
func (c *comparison) paced() (wrong []string) {
	for zone, tokens := range c.tokens[here] {
		for i, at := range tokens {
			switch {
			case c.rateAt(here, zone, at).perS == 0 && (c.rateAt(here, zone, at-1).perS == 0 || c.line.changesAt(at) < 2):
				wrong = append(wrong, "zone "+zone+" has a node tainted at "+at.String()+", at a rate of 0")
			case i > 0 && c.earnedSince(zone, tokens[i-1], at) < 0.999:
				wrong = append(wrong, "zone "+zone+" has nodes tainted at "+tokens[i-1].String()+" and "+at.String()+", too close for its rates")
			}
		}
	}
	return wrong
}

// earnedSince returns how many tokens a zone of the core earns after one. After a start, the core
// knows only the tokens whose taints are still there, in whole seconds, and none of the rates.
func (c *comparison) earnedSince(zone string, token, at time.Duration) float64 {
	began := time.Duration(0)
	for _, t := range c.line.troubles {
		if t.what == restarted && t.at > token && t.at <= at {
			began = max(began, t.at)
		}
	}
	if began == 0 {
		return c.earned(zone, token, at)
	}
	kept := slices.ContainsFunc(c.line.names, func(name string) bool {
		taints := nodeIs(name, evicts)
		return c.line.zones[name] == zone && c.films[here].changed(taints, token, token) && !c.films[here].changed(taints, token+1, began)
	})
	if !kept {
		return 1
	}
	return (began-token.Truncate(time.Second)).Seconds()*c.line.config.NodeEvictionRate + c.earned(zone, began, at)
}

// earned returns how many tokens the core's rates of a zone produce between two times.
func (c *comparison) earned(zone string, from, to time.Duration) (tokens float64) {
	for from < to {
		next := min(to, c.until(here, zone, from))
		tokens += c.rateAt(here, zone, from).perS * (next - from).Seconds()
		from = next
	}
	return tokens
}

// evicted returns why only one side has a NoExecute taint on a node. The other side must have a
// reason at each moment, apart from its delay. The first reason explains the difference.
func (c *comparison) evicted(r run, name string) (why string) {
	if c.films[there].is(nodeIs(name, evicts), r.from) == "" && c.line.begun(r.from-c.slack(), r.from) &&
		c.films[there].is(nodeIs(name, evicts), r.from-c.slack()) != "" {
		why = byRestart // it has removed the taint
	}
	excused, late := r.from, ""
	for at := r.from; at < r.to; at += look {
		x, y := c.films[here].is(nodeIs(name, evicts), at), c.films[there].is(nodeIs(name, evicts), at)
		reason := ""
		switch {
		case x == "":
			reason = c.excuse(here, name, at)
		case y == "":
			reason = c.excuse(there, name, at)
		default: // both have different taints
			reason = c.because(name, at)
		}
		brief := ""
		if reason == "" {
			brief = c.briefly(name, at)
		}
		switch {
		case reason != "":
			if excused = at; why == "" {
				why = reason
			}
		case brief != "":
			excused, late = at, brief
		case at-excused > c.slack():
			c.Logf("seed %d: no reason at %v: %s: core %q, upstream %q", c.line.seed, at, name, x, y)
			return ""
		}
	}
	return cmp.Or(why, late)
}

// excuse returns why a side does not taint a node at a time.
func (c *comparison) excuse(side int, name string, at time.Duration) string {
	zone, slack := c.line.zones[name], c.slack()
	if is := c.films[side].is(nodeIs(name, ready), at); is != "False" && is != "Unknown" {
		return c.because(name, at)
	}
	r := c.rateAt(side, zone, at)
	switch {
	case side == here && c.films[here].is(facet{what: doubted}, at) == "yes":
		return byDoubt
	case c.rateAt(there, zone, at).excluded && side == here:
		return byExcluded // upstream creates its queue, and the token in it, again in each pass
	case r.perS == 0:
		return c.stopped(side, zone, at)
	case side == there && c.staysStopped(zone, r.at, at):
		return byOne
	case side == there && r.perS == 1 && c.wasStopped(zone, at):
		return byOne // upstream's limiter of 0 reports the rate 1, and stays (client-go, flowcontrol.NewFakeNeverRateLimiter)
	}
	gap := time.Duration(float64(time.Second) / r.perS)
	if side == here {
		slack = 0 // the core is never late
	} else {
		gap += c.line.config.NodeMonitorPeriod + 2*step
	}
	if slices.ContainsFunc(c.tokens[side][zone], func(t time.Duration) bool { return t <= at && at <= t+gap }) {
		return byQueue
	}
	if r.at > 0 && at-r.at <= gap+slack { // a new rate begins without a token if the old one had none
		return byQueue
	}
	return ""
}

// stopped returns why a side has the rate 0 in a zone at a time.
func (c *comparison) stopped(side int, zone string, at time.Duration) string {
	other := sides - 1 - side
	near := func(d time.Duration) bool { return c.rateAt(other, zone, at+d).perS == 0 }
	if near(0) || near(c.slack()) || near(-c.slack()) {
		return byTimer // both have the rate: one tainted before, the other after
	}
	mine := c.rateAt(side, zone, at)
	if side == there && c.skips("", mine.at, at) {
		return byClock
	}
	if why := c.anyBecause(mine.at-c.slack(), at+c.slack()); why != "" {
		return why
	}
	if end := c.until(side, zone, at); end-mine.at <= c.slack() {
		return byTimer
	}
	return ""
}

// wasStopped reports whether upstream's rate of a zone was 0 at any time after its start.
func (c *comparison) wasStopped(zone string, at time.Duration) bool {
	return slices.ContainsFunc(c.rates[there][zone], func(r rate) bool {
		return r.perS == 0 && r.at <= at && !c.line.begun(c.until(there, zone, r.at), at)
	})
}

// staysStopped reports whether upstream's rate of a zone stays 0 although the disruption of all zones
// ended at a time: a zone that is new does not end it for upstream, which changes the rate of a zone
// only with its state, and that is still full disruption (1.37.2, handleDisruption).
func (c *comparison) staysStopped(zone string, from, at time.Duration) bool {
	isNew := false
	for other := range c.rates[there] {
		isNew = isNew || c.rateAt(there, other, from-1).excluded && !c.rateAt(there, other, from).excluded
	}
	ended := slices.ContainsFunc(c.down[there], func(e frame) bool { return e.at == from && e.value == "no" })
	return isNew && ended && !c.line.begun(from, at) && !slices.ContainsFunc(c.line.names, func(name string) bool {
		k := nodeIs(name, ready)
		return c.line.zones[name] == zone && (c.films[there].is(k, from) == "True" || c.films[there].changed(k, from, at))
	})
}

// until returns the end of a zone's rate of a time.
func (c *comparison) until(side int, zone string, at time.Duration) time.Duration {
	for _, r := range c.rates[side][zone] {
		if r.at > at {
			return r.at
		}
	}
	return c.line.end
}

// String returns a finding as text.
func (f finding) String() string {
	why := f.why
	if why == "" {
		why = "UNEXPLAINED"
	}
	return "  " + f.object + " " + f.what + " " + f.from.String() + " to " + f.to.String() + " here " + strconv.Quote(f.ours) + " there " +
		strconv.Quote(f.theirs) + ": " + why
}
