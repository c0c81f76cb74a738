package oracle

import (
	"testing"
	"time"
)

// A clock that was set back explains a difference only while upstream skips the node: it renewed its
// Lease since, and became silent before it wrote its status after that. It does not explain that a node
// which lives is called silent, nor what follows a restart of upstream.
func TestClockBackExplainsOnlySkippedNodes(t *testing.T) {
	const s = time.Second
	node := "Node/n"
	for name, c := range map[string]struct {
		renewals []time.Duration
		troubles []trouble
		from, to time.Duration // of the difference
		want     string
	}{
		"silent after one renewal":      {renewals: []time.Duration{195 * s}, from: 245 * s, to: 400 * s, want: byClock},
		"silent before a renewal":       {from: 245 * s, to: 400 * s},
		"a status in between":           {renewals: []time.Duration{175 * s}, from: 245 * s, to: 400 * s},
		"a status before the renewal":   {renewals: []time.Duration{185 * s}, from: 245 * s, to: 400 * s, want: byClock},
		"set back while silent":         {renewals: []time.Duration{400 * s}, from: 245 * s, to: 400 * s},
		"alive":                         {renewals: []time.Duration{195 * s}, from: 192 * s, to: 199 * s},
		"alive again":                   {renewals: []time.Duration{195 * s}, from: 245 * s, to: 440 * s},
		"upstream restarted, in time":   {renewals: []time.Duration{195 * s}, troubles: []trouble{{restarted, 250 * s, ""}}, from: 245 * s, to: 285 * s, want: byClock},
		"upstream restarted, too late":  {renewals: []time.Duration{195 * s}, troubles: []trouble{{restarted, 250 * s, ""}}, from: 245 * s, to: 400 * s},
		"upstream restarted before":     {renewals: []time.Duration{195 * s}, troubles: []trouble{{restarted, 197 * s, ""}}, from: 245 * s, to: 400 * s},
		"made again before a renewal":   {renewals: []time.Duration{191 * s, 198 * s}, troubles: []trouble{{removed, 185 * s, node}, {remade, 195 * s, node}}, from: 245 * s, to: 400 * s, want: byClock},
		"made again after the last one": {renewals: []time.Duration{191 * s}, troubles: []trouble{{removed, 195 * s, node}, {remade, 199 * s, node}}, from: 245 * s, to: 400 * s},
	} {
		line := newTimeline(1)
		line.end, line.troubles, line.renewals = 480*s, c.troubles, map[string][]time.Duration{"n": c.renewals}
		// alive since 60 s, silent from 200 s to 400 s
		line.statuses = map[string][]time.Duration{"n": {60 * s, 120 * s, 180 * s, 400 * s, 460 * s}}
		k := &comparison{TB: t, line: line}
		r := run{facet: nodeIs("n", ready), from: c.from, to: c.to, ours: "Unknown", theirs: "True"}
		if got := k.health(r, "n"); got != c.want {
			t.Errorf("%s: explanation = %q, want %q", name, got, c.want)
		}
	}
}

// Upstream skips a node until a status after which it remembers a Lease of the clock that was set
// back. A status before the first such Lease makes it remember the old Lease.
func TestUnseenEndsWithALeaseOfTheNewClock(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		before, renewals []time.Duration
		from, to         time.Duration // 0: never skipped
	}{
		"a status after the renewal":     {before: []time.Duration{165 * s}, renewals: []time.Duration{175 * s, 185 * s}},
		"a status before the renewal":    {before: []time.Duration{171 * s}, renewals: []time.Duration{183 * s, 193 * s}, from: 233 * s, to: 241 * s},
		"a renewal with the status":      {before: []time.Duration{170 * s}, renewals: []time.Duration{180 * s, 190 * s}},
		"a renewal before the next pass": {before: []time.Duration{171 * s}, renewals: []time.Duration{181 * s, 191 * s}},
		"alive without a later status":   {before: []time.Duration{405 * s}, renewals: []time.Duration{423 * s, 433 * s}, from: 473 * s, to: 480 * s},
	} {
		line := newTimeline(1)
		line.end, line.troubles = 480*s, nil
		line.before, line.renewals = map[string][]time.Duration{"n": c.before}, map[string][]time.Duration{"n": c.renewals}
		line.statuses = map[string][]time.Duration{"n": {120 * s, 180 * s, 240 * s, 420 * s}}
		from, to := line.unseen("n")
		if (from-c.from).Abs() >= s || (to-c.to).Abs() >= s {
			t.Errorf("%s: upstream skips the node from %v to %v, want %v to %v within a second", name, from, to, c.from, c.to)
		}
	}
}
