package agent

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/podlister"
	"jettison/internal/agent/serve/endpoints"
	"jettison/internal/node/config"
	"jettison/internal/node/nodetest"
)

// A client hands over a pod object and reads the State, which the loop has published.
func TestTheSocketAndTheLoop(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := newLoop(t, "", func(o *Options) { o.Config.Socket, o.Config.Disk = filepath.Join(dir, "s.sock"), config.ModeObserve })
	stop, err := l.objects.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	client := api.New(api.Options{Socket: l.o.Config.Socket})
	var status *api.StatusError
	if _, err := client.State(t.Context()); !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable {
		t.Errorf("before the loop runs: %v", err)
	}
	pod := []any{map[string]any{
		"metadata": map[string]any{"uid": nodetest.UID, "namespace": "default", "name": "p"},
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "c", "resources": map[string]any{"limits": map[string]any{"ephemeral-storage": "1Gi"}},
		}}},
	}}
	if _, err := client.PutPods(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	<-l.objects.Changed()
	if l.onObjects(); !l.objects.Limited() {
		t.Error("a pod with a limit on local storage is not looked at")
	}
	l.shown.changed()
	l.shown.publish(l.loop)
	s, err := client.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Pods.Objects != 1 || s.Pods.Clients != 1 || s.Disk != "observe" || len(s.Conditions) != len(eviction.Conditions) ||
		s.Conditions[3].Reason != "KubeletHasSufficientMemory" {
		t.Errorf("state %+v", s)
	}
}

// The State counts the pods of unknown priority once the runtime has told its pods, and follows what clients put.
func TestTheStateCountsUnknownPriorities(t *testing.T) {
	l := newLoop(t, "", nil)
	if got := l.state().Pods; got.UnknownPriority != nil {
		t.Errorf("before the runtime has told: %+v", got.UnknownPriority)
	}
	l.onListed(podlister.Update{Pods: l.Runs()})
	l.upkeep.unknown.Start()
	put := func(name string, want api.PodCount, unknown int) {
		t.Helper()
		text := `[{"metadata": {"uid": "` + nodetest.UID + `", "namespace": "default", "name": "` + name + `"}, "spec": {"priority": 0}}]`
		if _, _, err := l.objects.Store().Put(strings.NewReader(text), false, podstore.ByRoot); err != nil {
			t.Fatal(err)
		}
		l.onObjects()
		l.upkeep.unknown.Tick(time.Now())
		got := l.state().Pods
		if *got.UnknownPriority != (api.UnknownPriority{Pods: unknown, Unprotected: unknown}) {
			t.Errorf("%s: %+v of unknown priority", name, *got.UnknownPriority)
		}
		if got.ClientHeard == nil {
			t.Errorf("%s: no client was heard", name)
		}
		if got.UnknownPriority, got.ClientHeard = nil, nil; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	put("other", api.PodCount{Runtime: 1, RefusedObjects: 1}, 1)
	put("pod", api.PodCount{Runtime: 1, Objects: 1, Clients: 1}, 0)
	for _, line := range []string{"unknown=1 unprotected=1", "no unprotected pod of unknown priority left"} {
		if strings.Count(l.Text(), line) != 1 {
			t.Errorf("not once: %s\n%s", line, l.Text())
		}
	}
}

// A State that was published never changes, and there are not more of them than can be read.
func TestAStateIsPublished(t *testing.T) {
	l := newLoop(t, "", nil)
	if l.shown.publish(l.loop); l.shown.last.Load().state != nil {
		t.Error("published although nothing is new")
	}
	l.shown.changed()
	l.shown.publish(l.loop)
	first, ok := l.shown.forOthers().(*api.State)
	if !ok || first.Errors == nil || first.Signals[0].Threshold == nil {
		t.Fatalf("published %+v", first)
	}
	if l.shown.published.IsZero() {
		t.Error("nobody knows when it was published")
	}
	l.shown.published = time.Now().Add(time.Minute) // just now, however slow this machine is
	l.looks.Errors()["node"] = "later"
	l.shown.changed()
	if l.shown.publish(l.loop); l.shown.last.Load().state != first {
		t.Error("published again at once")
	}
	l.shown.published = time.Now().Add(-publishSoonest)
	l.shown.publish(l.loop)
	if second := l.shown.last.Load().state; second == first || len(first.Errors) != 0 || len(second.Errors) != 1 {
		t.Errorf("errors %v, then %v", first.Errors, second.Errors)
	}
}

// A State that is asked for is as of now; the loop makes it when it is asked, and one that hangs is not answered for.
func TestAStateIsAskedFor(t *testing.T) {
	l := newLoop(t, "", nil)
	old := &publication{state: &api.State{Time: time.Now().Add(-fresh)}, next: make(chan struct{})}
	l.shown.last.Store(old)
	if got := l.shown.forOthers(); got != nil {
		t.Errorf("a loop that hangs is answered for: %v", got)
	}
	answer := make(chan any, 1)
	go func() { answer <- l.shown.forOthers() }()
	<-l.shown.asked
	l.shown.wanted()
	l.shown.publish(l.loop)
	if state, ok := (<-answer).(*api.State); !ok || time.Since(state.Time) > fresh {
		t.Errorf("answered %+v", state)
	}
}

// Evictions that do not help stop, once aloud; and go on aloud.
func TestTheBreakerIsLoggedOnce(t *testing.T) {
	l := newLoop(t, "", nil)
	for range 3 {
		l.shown.breaker(l.log, &eviction.Decision{Stopped: true, Reason: "3 evictions did not help"})
	}
	if l.state().Stopped == "" {
		t.Error("the state does not say that evictions are stopped")
	}
	for range 2 {
		l.shown.breaker(l.log, &eviction.Decision{Evictions: []eviction.Eviction{{}}})
	}
	for _, line := range []string{"evictions are stopped", "evictions go on"} {
		if got := strings.Count(l.Text(), line); got != 1 {
			t.Errorf("%q is logged %d times:\n%s", line, got, l.Text())
		}
	}
}

// While the breaker holds back evictions, its reason, which says how much something has grown, is not logged at each look.
func TestWhatTheBreakerSaysIsNotRepeated(t *testing.T) {
	l := newLoop(t, "", nil)
	l.Available(90)
	now := time.Now()
	ready := l.measure(now)
	d := eviction.Decision{Signal: ready.Met[0], Stopped: true}
	for _, d.Reason = range []string{"x grows instead, by 1", "x grows instead, by 2"} {
		l.noEviction(&d)
	}
	if lines := strings.Count(l.Text(), "no eviction"); lines != 1 {
		t.Errorf("%d lines:\n%s", lines, l.Text())
	}
}

// A loop that hangs is known to within seconds, and nothing asks it. Before its first turn and after its last one it does not run.
func TestALoopThatHangsIsKnown(t *testing.T) {
	l := newLoop(t, "", nil)
	if _, why, runs := l.shown.turned(); runs || why == "" {
		t.Errorf("before it runs: %v %q", runs, why)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.run(ctx) }()
	for {
		if ago, _, runs := l.shown.turned(); runs && ago < time.Second {
			break
		}
		runtime.Gosched()
	}
	cancel()
	<-done
	if _, _, runs := l.shown.turned(); runs {
		t.Error("it runs after its end")
	}
	l.shown.turn()
	l.shown.began = l.shown.began.Add(-8 * time.Second) // it has not turned since
	if ago, _, runs := l.shown.turned(); !runs || ago < 8*time.Second {
		t.Errorf("it hangs: %v, %v", ago, runs)
	}
	e := endpoints.New(endpoints.Options{Turned: l.shown.turned})
	w := httptest.NewRecorder()
	e.Find(api.PathReady)(w, httptest.NewRequest(http.MethodGet, api.PathReady, nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("ready: %d %s", w.Code, w.Body)
	}
}

// state is what would be published now.
func (l *testLoop) state() *api.State {
	now := time.Now()
	ready := l.manager.Ready(now)
	return l.shown.make(now, l.loop, &ready)
}
