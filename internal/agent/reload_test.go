package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/agent/gate"
	"jettison/internal/agent/reload"
	"jettison/internal/node/config"
	"jettison/internal/node/socketpath"
	"jettison/stats"
)

// reloadWith passes another configuration to the loop, as if read again.
func (l *testLoop) reloadWith(next *config.Loaded, err error) {
	if next != nil { // keep the test's own paths
		next.Socket, next.StateDir = l.o.Config.Socket, l.o.Config.StateDir
	}
	l.onReloaded(time.Now(), &reload.Result{Time: time.Now(), Loaded: next, Err: err})
}

// A new configuration takes effect immediately in each part that uses it, and known state stays:
// the time since a soft threshold is met, and hold-offs. An invalid configuration, or one that
// exceeds the node, changes nothing.
func TestReloadAtRuntime(t *testing.T) {
	l := newLoop(t, softAndHard, nil)
	l.Available(150)
	at := time.Now()
	l.look(t.Context(), at)
	l.gate.SetSignal("held", stats.SignalMemoryAvailable)
	l.gate.ExtendDying(at, "held", "it was evicted")
	met := l.manager.Ready(at).Met
	if len(met) != 1 {
		t.Fatalf("met thresholds = %+v, want the soft one", met)
	}
	since, text := met[0].Since, strings.TrimSpace(softAndHard)
	l.reloadWith(configOf(t, text+"\nmaxPods: 7\ndisk: observe\ngate: false\nprotectedNamespaces: [kube-system, safe]\n"+
		"registerWithTaints: [{key: a, effect: NoExecute}]\n"), nil)
	l.reloadWith(configOf(t, strings.NewReplacer("200Mi", "300Mi", "10s", "20s", "100Mi}", "100Mi, pid.available: 10}").Replace(text)+
		"\nmaxPods: 7\ndisk: observe\nprotectedNamespaces: [kube-system, safe]\nregisterWithTaints: [{key: a, effect: NoExecute}]\n"), nil)
	l.look(t.Context(), time.Now())
	met = l.manager.Ready(time.Now()).Met
	if len(met) != 1 || !met[0].Since.Equal(since) || met[0].LimitText() != "300Mi" {
		t.Errorf("met thresholds = %+v, want one of 300Mi since %v", met, since)
	}
	if _, held := l.gate.HeldOff(time.Now(), "held", gate.Owner{}); !held {
		t.Error("the hold-off was lost")
	}
	allocatable := l.allocatable(l.capacity())
	if pods := allocatable[v1.ResourcePods]; pods.Value() != 7 || l.diskMode() != "observe" || !l.manager.Watches(stats.SignalPIDAvailable) {
		t.Errorf("%v pods are allocatable, disk mode %s, want 7 and observe", pods.Value(), l.diskMode())
	}
	if node := l.node(); len(node.Taints) != 1 {
		t.Errorf("node = %+v, want one taint", node)
	}
	if !l.o.Config.Gate {
		t.Error("a field that is read only at start has changed")
	}
	state := l.upkeep.reload.State()
	if state.Reloads != 2 || state.Failed != 0 || len(state.NextStart) != 0 {
		t.Errorf("state of the reloads = %+v, want two without failure", state)
	}
	before := l.o.Config
	l.reloadWith(nil, errors.New("config c.yaml:3: wrong"))
	l.reloadWith(configOf(t, "evictionHard: {memory.available: 2Gi}\n"), nil)
	if state = l.upkeep.reload.State(); l.o.Config != before || state.Failed != 2 || !strings.Contains(state.Error, "can never be satisfied: the capacity is 1Gi") {
		t.Errorf("state of the reloads = %+v, want two failures", state)
	}
	for _, want := range []string{"configuration change needs a restart", "fields=gate", "changed=\"[evictionHard evictionSoft evictionSoftGracePeriod]\"",
		"config c.yaml:3: wrong"} {
		if !strings.Contains(l.Text(), want) {
			t.Errorf("the log does not contain %q:\n%s", want, l.Text())
		}
	}
}

// A configuration without a threshold for memory is valid, and logged each time it becomes so.
func TestNoThresholdForMemory(t *testing.T) {
	with, without := "evictionHard: {memory.available: 100Mi, pid.available: 10}\n", "evictionHard: {pid.available: 10}\n"
	l := newLoop(t, without, nil)
	l.b.announce(l.loop, nil)
	for i, text := range []string{without + "maxPods: 7\n", with, without, without + "maxPods: 8\n"} {
		l.reloadWith(configOf(t, text), nil)
		want := 1
		if i > 1 {
			want = 2
		}
		if n := strings.Count(l.Text(), "no threshold for memory.available"); n != want {
			t.Errorf("after %q it is logged %d times, want %d", text, n, want)
		}
	}
}

// The socket's path is stored for probes that use a changed configuration file; empty if there is
// no socket.
func TestSocketPathIsStored(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"/run/x/a.sock", ""} {
		l := newLoop(t, "", func(o *Options) { o.Config.Socket, o.Config.StateDir = path, dir })
		if got := socketpath.Load(dir); got != path {
			t.Errorf("stored path = %q, want %q", got, path)
		}
		l.b.close()
		l.b.closers = nil
	}
}
