package gate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"jettison/cri/nri"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newGate(t *testing.T, vetoes bool) (*Gate, *bytes.Buffer) {
	var text bytes.Buffer
	return New(Options{
		Socket: filepath.Join(t.TempDir(), "none.sock"), Log: logthrottle.New(slog.New(slog.NewTextHandler(&text, nil))),
		Name: func(p stats.PodReference) string { return "default/" + p.Name },
	}, vetoes), &text
}

// That the runtime tells of its pods, that it does not, and each veto is said; the latter not again and again.
func TestWhatTheRuntimeTells(t *testing.T) {
	g, text := newGate(t, true)
	refused := nri.Update{State: nri.State{Err: errors.New("no such socket")}}
	veto := nri.Update{State: nri.State{Synced: true}, Vetoes: []nri.Veto{{UID: "u", Name: "p", Reason: "short"}}}
	for _, u := range []nri.Update{refused, refused, veto, veto, refused} {
		if all := g.OnTold(u); all != u.State.Synced || g.Keeps() != all {
			t.Errorf("%+v: tells of all %v, keeps out %v", u, all, g.Keeps())
		}
	}
	for line, want := range map[string]int{"does not tell of its pods": 2, "tells of its pods as": 1, "kept out\" pod=default/p": 1} {
		if got := strings.Count(text.String(), line); got != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", line, got, want, text)
		}
	}
}

// A gate that only listens keeps no pod out, whatever the runtime asks.
func TestAGateThatOnlyListens(t *testing.T) {
	g, _ := newGate(t, false)
	if g.OnTold(nri.Update{State: nri.State{Synced: true}}); g.Keeps() {
		t.Error("it keeps pods out")
	}
}

// Who is held off is so only where pods are kept out; without one who decides nobody is asked about.
func TestWhoIsHeldOff(t *testing.T) {
	for _, vetoes := range []bool{true, false} {
		g, _ := newGate(t, vetoes)
		now := time.Now()
		g.Evicted(now, "u", stats.SignalMemoryAvailable, "it leaks")
		if why, held := g.HeldOff(now, "u", Owner{}); held != vetoes || held && why != "it leaks" {
			t.Errorf("vetoes %v: %q, %v", vetoes, why, held)
		}
		if _, held := g.HeldOff(now, "other", Owner{Namespace: "shop", Name: "db"}); held {
			t.Error("another pod is held off")
		}
		owned(&g.HoldOffs)
		g.Evicted(now, "StatefulSet-db", stats.SignalMemoryAvailable, "it leaks")
		g.Evicted(now, "DaemonSet-a", stats.SignalMemoryAvailable, "it leaks")
		for _, next := range []Owner{{Namespace: "shop", Name: "db"}, {Kind: "DaemonSet", UID: "x", Namespace: "shop", Name: "agent-xxxxx"}} {
			if why, held := g.HeldOff(now, "other", next); held != vetoes || held && !strings.Contains(why, "takes the place of") {
				t.Errorf("vetoes %v: in place of one that was evicted: %+v: %q, %v", vetoes, next, why, held)
			}
		}
		if g.OnTold(nri.Update{State: nri.State{Synced: true}}); g.Asked() {
			t.Error("there is nobody to ask")
		}
	}
}

// Without a runtime's socket the plugin goes on trying, and ends with its context.
func TestAPluginThatIsNotConnectedEnds(t *testing.T) {
	g, _ := newGate(t, true)
	if g.Updates() != nil {
		t.Error("updates before the start")
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := g.Start(ctx)
	if u := <-g.Updates(); u.State.Synced || u.State.Err == nil {
		t.Errorf("%+v", u.State)
	}
	cancel()
	wait()
}
