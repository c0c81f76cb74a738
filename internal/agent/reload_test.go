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

// reloaded has the loop take another configuration, as one that was read again.
func (l *testLoop) reloaded(next *config.Loaded, err error) {
	if next != nil { // paths of the test's own
		next.Socket, next.StateDir = l.o.Config.Socket, l.o.Config.StateDir
	}
	l.onReloaded(time.Now(), &reload.Result{Time: time.Now(), Loaded: next, Err: err})
}

// Another configuration holds at once, in each part that goes by it, and what is known stays: a soft threshold is met since when it was, and
// a pod that is held off is. One that is wrong, or that this node cannot have, changes nothing.
func TestAnotherConfigurationWhileItRuns(t *testing.T) {
	l := newLoop(t, softAndHard, nil)
	l.Available(150)
	at := time.Now()
	l.look(t.Context(), at)
	l.gate.For("held", stats.SignalMemoryAvailable)
	l.gate.Dying(at, "held", "it was evicted")
	met := l.manager.Ready(at).Met
	if len(met) != 1 {
		t.Fatalf("%+v", met)
	}
	since, text := met[0].Since, strings.TrimSpace(softAndHard)
	l.reloaded(configOf(t, text+"\nmaxPods: 7\ndisk: observe\ngate: false\nprotectedNamespaces: [kube-system, safe]\n"+
		"registerWithTaints: [{key: a, effect: NoExecute}]\n"), nil)
	l.reloaded(configOf(t, strings.NewReplacer("200Mi", "300Mi", "10s", "20s", "100Mi}", "100Mi, pid.available: 10}").Replace(text)+
		"\nmaxPods: 7\ndisk: observe\nprotectedNamespaces: [kube-system, safe]\nregisterWithTaints: [{key: a, effect: NoExecute}]\n"), nil)
	l.look(t.Context(), time.Now())
	met = l.manager.Ready(time.Now()).Met
	if len(met) != 1 || !met[0].Since.Equal(since) || met[0].LimitText() != "300Mi" {
		t.Errorf("%+v, since %v", met, since)
	}
	if _, held := l.gate.HeldOff(time.Now(), "held", gate.Owner{}); !held {
		t.Error("it is not held off any more")
	}
	allocatable := l.allocatable(l.capacity())
	if pods := allocatable[v1.ResourcePods]; pods.Value() != 7 || l.diskMode() != "observe" || !l.manager.Watches(stats.SignalPIDAvailable) {
		t.Errorf("%v pods, disk %s", pods.Value(), l.diskMode())
	}
	if node := l.node(); len(node.Taints) != 1 {
		t.Errorf("%+v", node)
	}
	if !l.o.Config.Gate {
		t.Error("what is read at the start has changed")
	}
	state := l.upkeep.reload.State()
	if state.Reloads != 2 || state.Failed != 0 || len(state.NextStart) != 0 {
		t.Errorf("%+v", state)
	}
	before := l.o.Config
	l.reloaded(nil, errors.New("config c.yaml:3: wrong"))
	l.reloaded(configOf(t, "evictionHard: {memory.available: 2Gi}\n"), nil)
	if state = l.upkeep.reload.State(); l.o.Config != before || state.Failed != 2 || !strings.Contains(state.Error, "can never be satisfied: the capacity is 1Gi") {
		t.Errorf("%+v", state)
	}
	for _, want := range []string{"configuration change needs a restart", "fields=gate", "changed=\"[evictionHard evictionSoft evictionSoftGracePeriod]\"",
		"config c.yaml:3: wrong"} {
		if !strings.Contains(l.Text(), want) {
			t.Errorf("no %q in\n%s", want, l.Text())
		}
	}
}

// A configuration by which nothing watches the node's memory is one that a node may have, and is said once each time it comes to that.
func TestNothingWatchesMemory(t *testing.T) {
	with, without := "evictionHard: {memory.available: 100Mi, pid.available: 10}\n", "evictionHard: {pid.available: 10}\n"
	l := newLoop(t, without, nil)
	l.b.announce(l.loop, nil)
	for i, text := range []string{without + "maxPods: 7\n", with, without, without + "maxPods: 8\n"} {
		l.reloaded(configOf(t, text), nil)
		want := 1
		if i > 1 {
			want = 2
		}
		if n := strings.Count(l.Text(), "no threshold is for memory.available"); n != want {
			t.Errorf("after %q it is said %d times, want %d", text, n, want)
		}
	}
}

// Where the agent listens is left for probes that go by a file which has changed since; nothing where it listens nowhere.
func TestWhereItListensIsLeft(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"/run/x/a.sock", ""} {
		l := newLoop(t, "", func(o *Options) { o.Config.Socket, o.Config.StateDir = path, dir })
		if got := socketpath.Left(dir); got != path {
			t.Errorf("%q is left, want %q", got, path)
		}
		l.b.close()
		l.b.closers = nil
	}
}
