package garbage

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSchedule(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{Started: start, Jitter: rapid.Float64Range(0, 0.999999).Draw(t, "jitter")}
		s.Containers = time.Duration(rapid.IntRange(0, 120).Draw(t, "containers")) * time.Second
		s.Images = s.Containers * time.Duration(rapid.IntRange(0, 6).Draw(t, "times"))
		if rapid.Bool().Draw(t, "alone") {
			s.Containers = 0
		}
		now := start
		last := map[Kind]time.Time{}
		for range 50 {
			what, at := s.Next(now)
			period := s.Containers
			switch {
			case what == 0:
				if s.Containers > 0 || s.Images > 0 {
					t.Fatal("Next = never with a period set, want a pass")
				}
				return
			case what == Images:
				period = s.Images
			}
			if !at.After(now) || period == 0 {
				t.Fatalf("next pass = %v at %v, want one after %v with a period", what, at, now)
			}
			if before, ok := last[what]; ok && at.Sub(before) != period {
				t.Fatalf("%v at %v, the one before at %v", what, at, before)
			}
			if other, ok := last[Everything&^what]; ok && at.Sub(other) < s.Containers/4 && s.Containers > 0 {
				t.Fatalf("%v at %v, the other kind at %v", what, at, other)
			}
			last[what], now = at, at
		}
	})
	what, at := Schedule{Started: start, Containers: time.Minute, Images: 5 * time.Minute, Jitter: 0.5}.Next(start)
	if what != Containers || at != start.Add(30*time.Second) {
		t.Errorf("next pass = %v at %v, want containers after 30s", what, at)
	}
	// After a jump of the clock, as after a suspend: the next pass, not the missed ones.
	if _, at := (Schedule{Started: start, Containers: time.Minute}).Next(start.Add(1000*time.Hour + time.Second)); at != start.Add(1000*time.Hour+time.Minute) {
		t.Errorf("next pass at %v, want the next full minute", at)
	}
}
