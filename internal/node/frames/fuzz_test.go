package frames

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/base/strict"
)

// Any file gives frames or an error with its line, never a panic, and no victim without
// observations.
func FuzzReplay(f *testing.F) {
	c := policy(f, everything+"lower\n")
	s := node110(epoch, 1)
	s.Node.Memory.KernelAvailableBytes = some(1)
	all := reclaimed(FromLook(Input{Time: epoch, Summary: s, Pods: objects110(s), KillErrors: map[string]string{"a": "b"}}), s)
	all.Admit = []v1.Pod{strip(objects110(s)[0])}
	whole := line(f, all)
	f.Add(whole)
	f.Add(append(append([]byte{}, whole...), whole...))
	f.Add([]byte(`{"time":"2026-01-01T00:00:00Z","summary":{"node":{"memory":{"availableBytes":1,"workingSetBytes":9}},"pods":[{"podRef":{"uid":"a"},"memory":{"workingSetBytes":5}}]}}`))
	f.Add([]byte(`{"time":"2026-01-01T00:00:00Z","summary":null,"pods":[{"metadata":{"uid":"a"},"spec":{"containers":[{"resources":{"limits":{"ephemeral-storage":"1e9"}}}]}}]}`))
	f.Add([]byte("\x1f\x8b"))
	f.Add([]byte(`{"time":"2026-01-01T00:00:00+23:59","summary":{"node":{"cpu":{"psi":{"some":{"avg10":1e-9}}}}},"agent":{"pods":{"a":null,"b":{"psiTotals":{"io":{"some":1}}}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := NewReader(bytes.NewReader(text), "frames")
		p := NewPlayer(c)
		for lines := 0; err == nil; lines++ {
			var frame *Frame
			if frame, err = r.Next(); err != nil {
				break
			}
			o := p.Play(frame)
			if _, err := io.WriteString(io.Discard, written(t, o)); err != nil {
				t.Fatal(err)
			}
			if frame.Summary == nil && len(o.Evictions)+len(o.ThresholdsMet) > 0 {
				t.Fatalf("without any observation, the output is %+v", o)
			}
		}
		var fault *strict.FieldError
		if err != io.EOF && (!errors.As(err, &fault) || fault.Line < 1 || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("error without a line, or of several lines: %v", err)
		}
	})
}
