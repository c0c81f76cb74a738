package trim

import (
	"testing"
	"time"
)

// Memory is returned soon after a large use, and otherwise once per interval.
func TestMemoryIsReturned(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		since time.Duration
		taken bool
		want  bool
	}{
		"after a list":             {minInterval, true, true},
		"too early after a list":   {minInterval - 1, true, false},
		"without a list":           {interval - 1, false, false},
		"long time without a list": {interval, false, true},
	} {
		trimmer := Trimmer{at: start}
		if c.taken {
			trimmer.MemoryUsed()
		}
		now := start.Add(c.since)
		if gave := trimmer.Tick(now); gave != c.want || gave && (trimmer.used || !trimmer.at.Equal(now)) {
			t.Errorf("%s: memory returned %v at %v, want %v", name, gave, trimmer.at.Sub(start), c.want)
		}
		trimmer.Wait()
	}
}
