package agent

import (
	"strings"
	"testing"
	"time"
)

func TestHeadroomAdvice(t *testing.T) {
	var v advice
	if v.needed() != 0 {
		t.Error("advice without a measurement")
	}
	v.fill = 1 << 30
	v.react(20 * time.Millisecond)
	v.release(30 * time.Millisecond)
	if got, want := v.needed(), uint64(53687091); got != want { // 1 GiB/s for 50 ms
		t.Errorf("needs %d, want %d", got, want)
	}
	v.react(100 * time.Millisecond)
	worst := v.needed()
	for range advised - 1 {
		v.react(time.Millisecond)
		if v.needed() != worst {
			t.Fatal("the slowest is forgotten too soon")
		}
	}
	if v.react(time.Millisecond); v.needed() >= worst {
		t.Error("a slow reaction counts for ever")
	}
}

// A threshold that is too small is said once, and again when it gets much worse.
func TestAThresholdThatIsTooSmallIsSaid(t *testing.T) {
	n := newTestNode(t)
	n.a.o.Config = configOf(t, "evictionHard: {memory.available: 100Mi}")
	n.available(500)
	n.a.measure(time.Now())
	n.a.paces[0].floor = 1 << 30
	said := func() int { return strings.Count(n.log.String(), "smaller than what this node needs") }
	for _, c := range []struct {
		react time.Duration
		want  int
	}{{10 * time.Millisecond, 0}, {200 * time.Millisecond, 1}, {210 * time.Millisecond, 1}, {400 * time.Millisecond, 2}} {
		n.a.advice.react(c.react)
		if n.a.advise(); said() != c.want {
			t.Errorf("%v: said %d times, want %d\n%s", c.react, said(), c.want, n.log)
		}
	}
	if s := n.a.headroomAdvice(); s.ThresholdBytes != 100<<20 || s.NeededBytes != 429496729 || s.React != 400*time.Millisecond {
		t.Errorf("got %+v", s)
	}
}
