package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"jettison/internal/base/strict"
	"jettison/internal/cluster/config"
)

// play runs frames as the command does.
func play(t *testing.T, text string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Run(t.Context(), Options{Path: "-", Stdin: strings.NewReader(text), Config: config.Default()}, &out)
	return out.String(), err
}

// NH13, and a complete output: no list is null, an absent deadline is.
func TestOutputIsComplete(t *testing.T) {
	got, err := play(t, `{"time":"2026-01-01T00:00:00+01:00","nodes":[{"metadata":{"name":"n0","uid":"u"}}],"leases":[],"pods":[]}`+"\n"+
		`{"time":"2026-01-01T00:00:01+01:00","nodes":[]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"time":"2026-01-01T00:00:00+01:00","status":[{"node":"n0","conditions":[` +
		`{"type":"DiskPressure","status":"Unknown","reason":"NodeStatusNeverUpdated","message":"Kubelet never posted node status."},` +
		`{"type":"MemoryPressure","status":"Unknown","reason":"NodeStatusNeverUpdated","message":"Kubelet never posted node status."},` +
		`{"type":"PIDPressure","status":"Unknown","reason":"NodeStatusNeverUpdated","message":"Kubelet never posted node status."},` +
		`{"type":"Ready","status":"Unknown","reason":"NodeStatusNeverUpdated","message":"Kubelet never posted node status."}]}],"labels":[],` +
		`"taints":[{"node":"n0","add":["node.kubernetes.io/unreachable:NoSchedule"],"remove":[]}],"podsNotReady":[],"evict":[],` +
		`"events":[{"object":"Node/n0","type":"Normal","reason":"RegisteredNode","message":"Node n0 event: Registered Node n0 in Controller"}],` +
		`"zones":{":":"FullDisruption"},"next":null}` + "\n" +
		`{"time":"2026-01-01T00:00:01+01:00","status":[],"labels":[],"taints":[],"podsNotReady":[],"evict":[],` +
		`"events":[{"object":"Node/n0","type":"Normal","reason":"RemovingNode","message":"Node n0 event: Removing Node n0 from Controller"}],` +
		`"zones":{},"next":null}` + "\n"
	if got != want {
		t.Errorf("output is\n%swant\n%s", got, want)
	}
}

func TestInvalidFrames(t *testing.T) {
	const good = `{"time":"2026-01-01T00:00:00Z"}` + "\n"
	for _, c := range []struct{ text, want string }{
		{"{}", `line 2: time: missing`},
		{`{"time":"yesterday"}`, `line 2: time: "yesterday" is not an RFC 3339 time`},
		{`{"time":"1969-01-01T00:00:00Z"}`, `line 2: time: 1969-01-01T00:00:00Z is before 1970`},
		{`{"time":"2025-01-01T00:00:00Z"}`, `time goes backwards`},
		{`{"time":"2026-01-01T00:00:00Z","node":[]}`, `line 2: node: unknown field: did you mean "nodes"?`},
		{`{"time":"2026-01-01T00:00:00Z","nodes":{}}`, `line 2: nodes: want a list, got an object`},
		{`{"time":"2026-01-01T00:00:00Z","nodes":[{}]}`, `line 2: nodes[0].metadata.name: missing`},
		{`{"time":"2026-01-01T00:00:00Z","nodes":[{"metadata":{"name":"a"}},{"metadata":{"name":"a"}}]}`,
			`line 2: nodes[1].metadata.name: "a" is not unique, first in nodes[0]`},
		{`{"time":"2026-01-01T00:00:00Z","nodes":[{"metadata":{"name":"a"},"spec":{"taints":[{"timeAdded":7}]}}]}`,
			`line 2: nodes[0].spec.taints[0].timeAdded: want a time, got a number`},
		{`{"time":"2026-01-01T00:00:00Z","leases":[{"metadata":{"name":"a"},"spec":{"renewTime":"soon"}}]}`,
			`line 2: leases[0].spec.renewTime: "soon" is not an RFC 3339 time`},
		{`{"time":"2026-01-01T00:00:00Z","pods":[{"metadata":{"name":"a"}}]}`, `line 2: pods[0].metadata.uid: missing`},
		{`{"time":"2026-01-01T00:00:00Z","pods":[{"metadata":{"name":"a","uid":"1"}},{"metadata":{"name":"b","uid":"1"}}]}`,
			`line 2: pods[1].metadata.uid: "1" is not unique, first in pods[0]`},
		{`{"time":"2026-01-01T00:00:00Z"`, `line 2: the file is truncated in this frame`},
		{`[]`, `line 2: want an object, got a list`},
		{`{"time":"2026-01-01T00:00:00Z","time":"2026-01-01T00:00:00Z"}`, `line 2: time: duplicate field`},
	} {
		out, err := play(t, good+c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "standard input: line 2: ") {
			t.Errorf("error of frame %s = %v, want %s", c.text, err, c.want)
		}
		if strings.Count(out, "\n") != 1 {
			t.Errorf("output before frame %s = %q, want one line", c.text, out)
		}
	}
}

func TestLongLine(t *testing.T) {
	r := newReader(strings.NewReader(`{"time":"2026-01-01T00:00:00Z"}`), "x")
	r.max = 10
	if _, err := r.next(); err == nil || !strings.Contains(err.Error(), "line 1: longer than 10 bytes") {
		t.Errorf("error of a long line = %v, want longer than 10 bytes", err)
	}
}

func TestMissingFile(t *testing.T) {
	err := Run(t.Context(), Options{Path: t.TempDir() + "/none", Config: config.Default()}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("error of a missing file = %v, want its name", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, Options{Path: t.TempDir() + "/none", Config: config.Default()}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("error after cancellation = %v, want context.Canceled", err)
	}
}

// Each frame is rejected or decided on, and Next is after the frame's time.
func FuzzFrames(f *testing.F) {
	f.Add(`{"time":"2026-01-01T00:00:00Z","nodes":[{"metadata":{"name":"n","uid":"u"},"spec":{"taints":[{"key":"k","effect":"NoExecute"}]},` +
		`"status":{"conditions":[{"type":"Ready","status":"True"}]}}],"leases":[{"metadata":{"name":"n"},"spec":{"renewTime":"2026-01-01T00:00:00Z"}}],` +
		`"pods":[{"metadata":{"name":"p","uid":"1"},"spec":{"nodeName":"n","tolerations":[{"operator":"Exists","tolerationSeconds":9223372036854775807}]}}]}`)
	f.Add(`{"time":"9999-12-31T23:59:59Z","nodes":[{"metadata":{"name":"n","creationTimestamp":"0001-01-01T00:00:00Z"}}]}` + "\n" +
		`{"time":"9999-12-31T23:59:59Z","pods":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r := newReader(strings.NewReader(text), "fuzz")
		p := newPlayer(config.Default())
		for {
			frame, err := r.next()
			if err != nil {
				return
			}
			if out := p.play(frame); out.Next != nil {
				if next, err := strict.ParseTime(*out.Next); err == nil && !next.After(frame.at) {
					t.Errorf("frame at %s: next = %s, want a later time", frame.Time, *out.Next)
				}
			}
		}
	})
}
