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

// Passes run one at a time, at the kubelet's interval, and an error is logged once.
func TestRotationPasses(t *testing.T) {
	var text bytes.Buffer
	r := NewRotation(Rotator{MaxSize: -1}, logthrottle.New(slog.New(slog.NewTextHandler(&text, nil)))) // skips all logs
	now := time.Now()
	r.Tick(t.Context(), now, read.Index{})
	r.Tick(t.Context(), now.Add(Every), read.Index{}) // the first result is not received yet
	r.OnResult(<-r.Results())
	if r.Wait(); len(r.Results()) > 0 || r.running {
		t.Error("two passes ran at the same time")
	}
	if r.Tick(t.Context(), now.Add(Every-1), read.Index{}); r.running {
		t.Error("second pass started before its interval")
	}
	if r.Tick(t.Context(), now.Add(Every), read.Index{}); !r.running {
		t.Error("no second pass after its interval")
	}
	r.OnResult(<-r.Results())
	if text.Len() > 0 {
		t.Errorf("log without a change = %s, want none", &text)
	}
	for range 2 {
		r.OnResult(PassResult{Result{Rotated: 1}, errors.New("a log that hangs")})
	}
	if log := text.String(); strings.Count(log, "rotated logs") != 2 || strings.Count(log, "a log that hangs") != 1 {
		t.Errorf("log = %s, want two rotations and one error", log)
	}
	r.Wait()
}

// A nil Rotation runs no passes.
func TestNoRotation(t *testing.T) {
	var r *Rotation
	if r.Tick(t.Context(), time.Now(), nil); r.Results() != nil {
		t.Error("results channel of a nil Rotation")
	}
	r.Wait()
}
