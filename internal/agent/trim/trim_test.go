package trim

import (
	"testing"
	"time"
)

// Memory is given back soon after something took a lot of it, and now and then without that.
func TestMemoryIsGivenBack(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		since time.Duration
		taken bool
		want  bool
	}{
		"after a list":         {soonest, true, true},
		"so soon again":        {soonest - 1, true, false},
		"without a list":       {every - 1, false, false},
		"without one for long": {every, false, true},
	} {
		trimmer := Trimmer{at: start}
		if c.taken {
			trimmer.Taken()
		}
		now := start.Add(c.since)
		if gave := trimmer.Tick(now); gave != c.want || gave && (trimmer.taken || !trimmer.at.Equal(now)) {
			t.Errorf("%s: given back %v, %+v", name, gave, trimmer.at.Sub(start))
		}
		trimmer.Wait()
	}
}
