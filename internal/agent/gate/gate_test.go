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

// Connection, loss and each veto are logged; the same veto is not repeated.
func TestPluginUpdatesAreLogged(t *testing.T) {
	g, text := newGate(t, true)
	refused := nri.Update{State: nri.State{Err: errors.New("no such socket")}}
	veto := nri.Update{State: nri.State{Synced: true}, Vetoes: []nri.Veto{{UID: "u", Name: "p", Reason: "short"}}}
	for _, u := range []nri.Update{refused, refused, veto, veto, refused} {
		if all := g.OnUpdate(u); all != u.State.Synced || g.Enforces() != all {
			t.Errorf("update %+v: all pods reported %v, evicted pods refused %v", u, all, g.Enforces())
		}
	}
	for line, want := range map[string]int{"runtime events unavailable": 2, "runtime events connected": 1, "rejected\" eventKind=gate pod=default/p": 1} {
		if got := strings.Count(text.String(), line); got != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", line, got, want, text)
		}
	}
}

// A gate that only listens refuses no pod, whatever the runtime asks.
func TestListeningGate(t *testing.T) {
	g, _ := newGate(t, false)
	if g.OnUpdate(nri.Update{State: nri.State{Synced: true}}); g.Enforces() {
		t.Error("a gate that only listens refuses evicted pods")
	}
}

// Hold-offs apply only if the gate refuses pods; without an Asker the gate decides on no pod.
func TestHeldOff(t *testing.T) {
	for _, vetoes := range []bool{true, false} {
		g, _ := newGate(t, vetoes)
		now := time.Now()
		g.Evicted(now, "u", stats.SignalMemoryAvailable, "it leaks")
		if why, held := g.HeldOff(now, "u", Owner{}); held != vetoes || held && why != "it leaks" {
			t.Errorf("vetoes %v: reason of the hold-off %q, held %v", vetoes, why, held)
		}
		if _, held := g.HeldOff(now, "other", Owner{Namespace: "shop", Name: "db"}); held {
			t.Errorf("vetoes %v: another pod has a hold-off", vetoes)
		}
		owned(&g.HoldOffs)
		g.Evicted(now, "StatefulSet-db", stats.SignalMemoryAvailable, "it leaks")
		g.Evicted(now, "DaemonSet-a", stats.SignalMemoryAvailable, "it leaks")
		for _, next := range []Owner{{Namespace: "shop", Name: "db"}, {Kind: "DaemonSet", UID: "x", Namespace: "shop", Name: "agent-xxxxx"}} {
			if why, held := g.HeldOff(now, "other", next); held != vetoes || held && !strings.Contains(why, "it replaces pod ") {
				t.Errorf("vetoes %v: hold-off of the replacement %+v = %q, %v", vetoes, next, why, held)
			}
		}
		if g.OnUpdate(nri.Update{State: nri.State{Synced: true}}); g.Asked() {
			t.Error("a gate without an Asker reports that it is asked")
		}
	}
}

// Without a runtime's socket the plugin retries, and ends with its context.
func TestUnconnectedPluginEnds(t *testing.T) {
	g, _ := newGate(t, true)
	if g.Updates() != nil {
		t.Error("the gate has updates before its start")
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := g.Start(ctx)
	if u := <-g.Updates(); u.State.Synced || u.State.Err == nil {
		t.Errorf("first state = %+v, want an error", u.State)
	}
	cancel()
	wait()
}
