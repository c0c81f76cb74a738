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
		t.Error("needed() without a measurement is not 0")
	}
	h, _ = newHeadroom(1 << 30)
	h.RecordReaction(20 * time.Millisecond)
	h.RecordRelease(30 * time.Millisecond)
	if got, want := h.needed(), uint64(53687091); got != want { // 1 GiB/s for 50 ms
		t.Errorf("needed() = %d, want %d", got, want)
	}
	h.RecordReaction(100 * time.Millisecond)
	worst := h.needed()
	for range historySize - 1 {
		h.RecordReaction(time.Millisecond)
		if h.needed() != worst {
			t.Fatal("the slowest reaction is forgotten too early")
		}
	}
	if h.RecordReaction(time.Millisecond); h.needed() >= worst {
		t.Error("a slow reaction counts forever")
	}
}

// A threshold that is too small is logged once, and again when the need grows much.
func TestTooSmallThresholdIsLogged(t *testing.T) {
	h, text := newHeadroom(1 << 30)
	logged := func() int { return strings.Count(text.String(), "hard threshold smaller than needed") }
	for _, c := range []struct {
		react time.Duration
		want  int
	}{{10 * time.Millisecond, 0}, {200 * time.Millisecond, 1}, {210 * time.Millisecond, 1}, {400 * time.Millisecond, 2}} {
		h.RecordReaction(c.react)
		h.Advise(0) // no threshold is configured
		if h.Advise(100 << 20); logged() != c.want {
			t.Errorf("reaction of %v: logged %d times, want %d\n%s", c.react, logged(), c.want, text)
		}
	}
	if s := h.State(100 << 20); s.ThresholdBytes != 100<<20 || s.NeededBytes != 429496729 || s.React != 400*time.Millisecond {
		t.Errorf("state of the advice = %+v", s)
	}
}
