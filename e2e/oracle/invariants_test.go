package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// settled is the time until the core has seen and answered its own writes.
const settled = time.Microsecond

// healthy returns which rules the core breaks, whatever upstream does: the conditions, taints and
// marks of a node follow from its state, exactly when they must, and it has no others.
func (c *comparison) healthy() (wrong []string) {
	fail := func(at time.Duration, format string, args ...any) {
		wrong = append(wrong, at.String()+": "+fmt.Sprintf(format, args...))
	}
	for _, name := range c.line.names {
		c.silences(name, fail)
		c.taints(name, fail)
		c.marks(name, fail)
	}
	for zone := range c.rates[here] {
		c.served(zone, fail)
	}
	return wrong
}

// instants returns the times at which a facet of a node, or the doubt, has changed and the core has
// settled, except where the next change follows immediately.
func (c *comparison) instants(facets ...facet) (out []time.Duration) {
	var times []time.Duration
	for _, k := range facets {
		for _, e := range c.films[here][k] {
			times = append(times, e.at)
		}
	}
	slices.Sort(times)
	for i, at := range times {
		if i+1 == len(times) || times[i+1]-at > settled {
			out = append(out, at+settled)
		}
	}
	return out
}

// silences checks that Ready is Unknown exactly from the end of the grace period after the last
// contact on. After a start, and after the disruption of all zones, the time of the last contact may
// be another one; the comparison with upstream checks these.
func (c *comparison) silences(name string, fail func(time.Duration, string, ...any)) {
	grace, contacts := c.line.config.NodeMonitorGracePeriod, c.line.contacts(name)
	for i, last := range contacts {
		next := c.line.end
		if i+1 < len(contacts) {
			next = contacts[i+1]
		}
		deadline := last + grace
		if next <= deadline || c.line.begun(last+1, next) || c.line.happened(removed, "Node/"+name, 0, next) ||
			slices.ContainsFunc(c.down[here], func(e frame) bool { return e.value == "no" && e.at > last && e.at <= next }) {
			continue
		}
		for _, probe := range []struct {
			at   time.Duration
			want bool
		}{{deadline, false}, {deadline + settled, true}, {next - 1, true}} {
			if is := c.films[here].is(nodeIs(name, ready), probe.at) == "Unknown"; is != probe.want {
				fail(probe.at, "%s is Unknown: %t, want %t: its last contact was at %v", name, is, probe.want, last)
			}
		}
	}
}

// taints checks that a node has the taints that follow from its conditions, and none of the others.
func (c *comparison) taints(name string, fail func(time.Duration, string, ...any)) {
	f := c.films[here]
	k := func(what string) facet { return nodeIs(name, what) }
	keys := map[v1.NodeConditionType]string{v1.NodeMemoryPressure: "memory-pressure", v1.NodeDiskPressure: "disk-pressure",
		v1.NodePIDPressure: "pid-pressure"}
	facets := []facet{k(ready), k(schedules), k(evicts)}
	for _, pressure := range pressures {
		facets = append(facets, k(string(pressure)))
	}
	for _, at := range c.instants(facets...) {
		is, taint := f.is(k(ready), at), map[string]string{"False": "not-ready", "Unknown": "unreachable"}[f.is(k(ready), at)]
		if is == gone {
			continue
		}
		var want []string
		if taint != "" {
			want = append(want, taint)
		}
		for _, pressure := range pressures {
			if f.is(k(string(pressure)), at) == "True" {
				want = append(want, keys[pressure])
			}
		}
		if c.line.happened(cordoned, "Node/"+name, 0, at) && !c.line.happened(removed, "Node/"+name, 0, at) {
			want = append(want, "unschedulable")
		}
		slices.Sort(want)
		got := f.is(k(schedules), at)
		if c.line.happened(remade, "Node/"+name, 0, at) {
			got = strings.TrimSuffix(got, "unschedulable") // it may have been cordoned since
			want = slices.DeleteFunc(want, func(key string) bool { return key == "unschedulable" })
			got = strings.TrimSuffix(got, ",")
		}
		if got != strings.Join(want, ",") {
			fail(at, "%s has the NoSchedule taints %q, want %q", name, got, want)
		}
		evicting := f.is(k(evicts), at)
		if evicting != "" && evicting != taint && !c.line.begun(at-time.Second-settled, at) {
			fail(at, "%s is %s and has the NoExecute taint %q", name, is, evicting)
		}
	}
}

// marks checks that each pod on a silent node is marked, except in doubt.
func (c *comparison) marks(name string, fail func(time.Duration, string, ...any)) {
	f := c.films[here]
	for _, p := range c.line.pods {
		key := keyOf(p)
		for _, at := range c.instants(nodeIs(name, ready), facet{what: doubted}, podIs(key, ready), podIs(key, onNode)) {
			if f.is(podIs(key, onNode), at) == name && f.is(nodeIs(name, ready), at) == "Unknown" &&
				f.is(facet{what: doubted}, at) == "no" && f.is(podIs(key, ready), at) == "True" {
				fail(at, "pod %s on silent node %s is not marked", key, name)
			}
		}
	}
}

// served checks that a zone spends each token as soon as it has one, on the node that failed first.
func (c *comparison) served(zone string, fail func(time.Duration, string, ...any)) {
	f := c.films[here]
	waits := func(name string, at time.Duration) bool {
		is := f.is(nodeIs(name, ready), at)
		return c.line.zones[name] == zone && (is == "False" || is == "Unknown") && f.is(nodeIs(name, evicts), at) == ""
	}
	for _, at := range c.tokens[here][zone] {
		for _, name := range c.line.names {
			if !waits(name, at+settled) || c.line.begun(at-time.Second, at) {
				continue
			}
			for _, other := range c.line.names {
				took := c.line.zones[other] == zone && f.is(nodeIs(other, evicts), at-1) == "" &&
					f.is(nodeIs(other, evicts), at+settled) != ""
				// after a start, the core knows only the transition times of kubelets' clocks
				if took && c.failed(name, at) < c.failed(other, at) && !c.line.begun(c.failed(name, at), at) {
					fail(at, "%s gets the token of zone %s, but %s failed before", other, zone, name)
				}
			}
		}
	}
	for _, name := range c.line.names {
		if c.line.zones[name] != zone {
			continue
		}
		for at := time.Duration(0); at < c.line.end; at += look {
			r := c.rateAt(here, zone, at)
			if r.perS == 0 || !waits(name, at) {
				continue
			}
			since := max(r.at, c.failed(name, at)) // a new rate begins without a token
			for _, token := range c.tokens[here][zone] {
				if token <= at {
					since = max(since, token)
				}
			}
			if wait := time.Duration(float64(time.Second)/r.perS) + settled; at-since > wait && !c.line.begun(at-wait-time.Second, at) {
				fail(at, "%s waits in zone %s, which has had a token since %v", name, zone, since+wait)
				break
			}
		}
	}
}

// failed returns since when a node is not ready at a time.
func (c *comparison) failed(name string, at time.Duration) (since time.Duration) {
	list := c.films[here][nodeIs(name, ready)]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].at > at {
			continue
		}
		if list[i].value != "False" && list[i].value != "Unknown" {
			return since
		}
		since = list[i].at
	}
	return since
}
