package logrotate

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"jettison/internal/base/logthrottle"
	"jettison/stats/read"
)

// Passes come one at a time, as often as the kubelet's, and what they did is logged once.
func TestRotationPasses(t *testing.T) {
	var text bytes.Buffer
	r := NewRotation(Rotator{MaxSize: -1}, logthrottle.New(slog.New(slog.NewTextHandler(&text, nil)))) // which passes over everything
	now := time.Now()
	r.Tick(t.Context(), now, read.Index{})
	r.Tick(t.Context(), now.Add(Every), read.Index{}) // the first one was not taken yet
	r.OnPassed(<-r.Passed())
	if r.Wait(); len(r.Passed()) > 0 || r.running {
		t.Error("two passes at a time")
	}
	if r.Tick(t.Context(), now.Add(Every-1), read.Index{}); r.running {
		t.Error("so soon again")
	}
	if r.Tick(t.Context(), now.Add(Every), read.Index{}); !r.running {
		t.Error("no further pass")
	}
	r.OnPassed(<-r.Passed())
	if text.Len() > 0 {
		t.Errorf("nothing was done: %s", &text)
	}
	for range 2 {
		r.OnPassed(Passed{Result{Rotated: 1}, errors.New("a log that hangs")})
	}
	if said := text.String(); strings.Count(said, "rotated logs") != 2 || strings.Count(said, "a log that hangs") != 1 {
		t.Errorf("said:\n%s", said)
	}
	r.Wait()
}

// Where no log is rotated there is no Rotation, and nothing to wait for.
func TestNoRotation(t *testing.T) {
	var r *Rotation
	if r.Tick(t.Context(), time.Now(), nil); r.Passed() != nil {
		t.Error("a pass without a rotation")
	}
	r.Wait()
}
