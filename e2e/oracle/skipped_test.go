package oracle

import (
	"testing"
	"time"
)

// A clock that was set back explains a difference only while upstream skips the node: it renewed its
// Lease since, and became silent before it wrote its status again. It does not explain that a node
// which lives is called silent, nor what follows a restart of upstream.
func TestClockBackExplainsOnlySkippedNodes(t *testing.T) {
	const s = time.Second
	node := "Node/n"
	for name, c := range map[string]struct {
		back     time.Duration
		renewals []time.Duration
		troubles []trouble
		from, to time.Duration // of the difference
		want     string
	}{
		"silent after one renewal":      {back: 190 * s, renewals: []time.Duration{195 * s}, from: 245 * s, to: 400 * s, want: byClock},
		"silent before a renewal":       {back: 198 * s, from: 245 * s, to: 400 * s},
		"a status in between":           {back: 170 * s, renewals: []time.Duration{175 * s}, from: 245 * s, to: 400 * s},
		"set back while silent":         {back: 210 * s, renewals: []time.Duration{400 * s}, from: 245 * s, to: 400 * s},
		"alive":                         {back: 190 * s, renewals: []time.Duration{195 * s}, from: 192 * s, to: 199 * s},
		"alive again":                   {back: 190 * s, renewals: []time.Duration{195 * s}, from: 245 * s, to: 440 * s},
		"upstream restarted, in time":   {back: 190 * s, renewals: []time.Duration{195 * s}, troubles: []trouble{{restarted, 250 * s, ""}}, from: 245 * s, to: 285 * s, want: byClock},
		"upstream restarted, too late":  {back: 190 * s, renewals: []time.Duration{195 * s}, troubles: []trouble{{restarted, 250 * s, ""}}, from: 245 * s, to: 400 * s},
		"upstream restarted before":     {back: 190 * s, renewals: []time.Duration{195 * s}, troubles: []trouble{{restarted, 197 * s, ""}}, from: 245 * s, to: 400 * s},
		"made again before a renewal":   {back: 190 * s, renewals: []time.Duration{191 * s, 198 * s}, troubles: []trouble{{removed, 185 * s, node}, {remade, 195 * s, node}}, from: 245 * s, to: 400 * s, want: byClock},
		"made again after the last one": {back: 190 * s, renewals: []time.Duration{191 * s}, troubles: []trouble{{removed, 195 * s, node}, {remade, 199 * s, node}}, from: 245 * s, to: 400 * s},
		"the clock of another node":     {back: -1, renewals: []time.Duration{195 * s}, from: 245 * s, to: 400 * s},
	} {
		line := newTimeline(1)
		line.end, line.troubles, line.renewals = 480*s, c.troubles, map[string][]time.Duration{"n": c.renewals}
		line.lives = map[string][]span{"n": {{60 * s, 200 * s, alive}, {200 * s, 400 * s, silent}, {400 * s, 480 * s, alive}}}
		if c.back >= 0 {
			line.note(clockBack, c.back, node)
		}
		k := &comparison{TB: t, line: line}
		r := run{facet: nodeIs("n", ready), from: c.from, to: c.to, ours: "Unknown", theirs: "True"}
		if got := k.health(r, "n"); got != c.want {
			t.Errorf("%s: explanation = %q, want %q", name, got, c.want)
		}
	}
}
