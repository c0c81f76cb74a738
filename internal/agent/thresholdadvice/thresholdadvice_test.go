package thresholdadvice

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"jettison/internal/base/logthrottle"
)

func newHeadroom(fill float64) (*Headroom, *bytes.Buffer) {
	var text bytes.Buffer
	return New(fill, logthrottle.New(slog.New(slog.NewTextHandler(&text, nil)))), &text
}

func TestHeadroomAdvice(t *testing.T) {
	h, _ := newHeadroom(0)
	if h.needed() != 0 {
		t.Error("advice without a measurement")
	}
	h, _ = newHeadroom(1 << 30)
	h.React(20 * time.Millisecond)
	h.Release(30 * time.Millisecond)
	if got, want := h.needed(), uint64(53687091); got != want { // 1 GiB/s for 50 ms
		t.Errorf("needs %d, want %d", got, want)
	}
	h.React(100 * time.Millisecond)
	worst := h.needed()
	for range advised - 1 {
		h.React(time.Millisecond)
		if h.needed() != worst {
			t.Fatal("the slowest is forgotten too soon")
		}
	}
	if h.React(time.Millisecond); h.needed() >= worst {
		t.Error("a slow reaction counts for ever")
	}
}

// A threshold that is too small is said once, and again when it gets much worse.
func TestAThresholdThatIsTooSmallIsSaid(t *testing.T) {
	h, text := newHeadroom(1 << 30)
	said := func() int { return strings.Count(text.String(), "smaller than what this node needs") }
	for _, c := range []struct {
		react time.Duration
		want  int
	}{{10 * time.Millisecond, 0}, {200 * time.Millisecond, 1}, {210 * time.Millisecond, 1}, {400 * time.Millisecond, 2}} {
		h.React(c.react)
		h.Advise(0) // no threshold is configured
		if h.Advise(100 << 20); said() != c.want {
			t.Errorf("%v: said %d times, want %d\n%s", c.react, said(), c.want, text)
		}
	}
	if s := h.State(100 << 20); s.ThresholdBytes != 100<<20 || s.NeededBytes != 429496729 || s.React != 400*time.Millisecond {
		t.Errorf("got %+v", s)
	}
}
