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

// A client provides a pod object and reads the State that the loop published.
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
		t.Errorf("State before the loop runs: error %v, want status 503", err)
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
		t.Error("a pod with a limit on local storage is not measured")
	}
	l.publisher.markChanged()
	l.publisher.publish(l.loop)
	s, err := client.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Pods.Objects != 1 || s.Pods.Clients != 1 || s.Disk != "observe" || len(s.Conditions) != len(eviction.Conditions) ||
		s.Conditions[3].Reason != "KubeletHasSufficientMemory" {
		t.Errorf("State after a client provided a pod = %+v", s)
	}
}

// The State counts pods of unknown priority after the first list, and follows the objects of
// clients.
func TestTheStateCountsUnknownPriorities(t *testing.T) {
	l := newLoop(t, "", nil)
	if got := l.state().Pods; got.UnknownPriority != nil {
		t.Errorf("pods of unknown priority before the first list = %+v, want nil", got.UnknownPriority)
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
			t.Errorf("%s: pods of unknown priority = %+v, want %d", name, *got.UnknownPriority, unknown)
		}
		if got.ClientHeard == nil {
			t.Errorf("%s: the State has no time of a client", name)
		}
		if got.UnknownPriority, got.ClientHeard = nil, nil; got != want {
			t.Errorf("%s: counts of pods = %+v, want %+v", name, got, want)
		}
	}
	put("other", api.PodCount{Runtime: 1, RefusedObjects: 1}, 1)
	put("pod", api.PodCount{Runtime: 1, Objects: 1, Clients: 1}, 0)
	for _, line := range []string{"unknown=1 unprotected=1", "no unprotected pod of unknown priority left"} {
		if strings.Count(l.Text(), line) != 1 {
			t.Errorf("the log does not contain %q once:\n%s", line, l.Text())
		}
	}
}

// A published State is immutable, and States are published at most every publishInterval.
func TestAStateIsPublished(t *testing.T) {
	l := newLoop(t, "", nil)
	if l.publisher.publish(l.loop); l.publisher.last.Load().state != nil {
		t.Error("a State is published without a change")
	}
	l.publisher.markChanged()
	l.publisher.publish(l.loop)
	first, ok := l.publisher.currentState().(*api.State)
	if !ok || first.Errors == nil || first.Signals[0].Threshold == nil {
		t.Fatalf("first published State = %+v, want signals and errors", first)
	}
	if l.publisher.published.IsZero() {
		t.Error("the time of the publication is missing")
	}
	l.publisher.published = time.Now().Add(time.Minute) // just now, even on a slow machine
	l.looks.Errors()["node"] = "later"
	l.publisher.markChanged()
	if l.publisher.publish(l.loop); l.publisher.last.Load().state != first {
		t.Error("a second State is published within publishInterval")
	}
	l.publisher.published = time.Now().Add(-publishInterval)
	l.publisher.publish(l.loop)
	if second := l.publisher.last.Load().state; second == first || len(first.Errors) != 0 || len(second.Errors) != 1 {
		t.Errorf("errors of the first State %v, of the second %v, want none and one", first.Errors, second.Errors)
	}
}

// A requested State is current: the loop makes it on request. A loop that hangs gives none.
func TestStateRequests(t *testing.T) {
	l := newLoop(t, "", nil)
	old := &publication{state: &api.State{Time: time.Now().Add(-maxStateAge)}, next: make(chan struct{})}
	l.publisher.last.Store(old)
	if got := l.publisher.currentState(); got != nil {
		t.Errorf("State of a loop that hangs = %v, want nil", got)
	}
	answer := make(chan any, 1)
	go func() { answer <- l.publisher.currentState() }()
	<-l.publisher.requests
	l.publisher.publishNow()
	l.publisher.publish(l.loop)
	if state, ok := (<-answer).(*api.State); !ok || time.Since(state.Time) > maxStateAge {
		t.Errorf("requested State = %+v, want a current one", state)
	}
}

// The breaker is logged once when it opens and once when it closes.
func TestTheBreakerIsLoggedOnce(t *testing.T) {
	l := newLoop(t, "", nil)
	for range 3 {
		l.publisher.logBreaker(l.log, &eviction.Decision{BreakerOpen: true, Reason: "3 evictions did not help"})
	}
	if l.state().BreakerOpen == "" {
		t.Error("the State lacks the open breaker")
	}
	for range 2 {
		l.publisher.logBreaker(l.log, &eviction.Decision{Evictions: []eviction.Eviction{{}}})
	}
	for _, line := range []string{"circuit breaker opened", "circuit breaker closed"} {
		if got := strings.Count(l.Text(), line); got != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", line, got, l.Text())
		}
	}
}

// While the breaker is open, its reason, which contains changing figures, is not logged at each
// look.
func TestBreakerReasonIsNotRepeated(t *testing.T) {
	l := newLoop(t, "", nil)
	l.Available(90)
	now := time.Now()
	ready := l.measure(now)
	d := eviction.Decision{Signal: ready.Met[0], BreakerOpen: true}
	for _, d.Reason = range []string{"x grows instead, by 1", "x grows instead, by 2"} {
		l.logNoEviction(&d)
	}
	if lines := strings.Count(l.Text(), "threshold met without eviction"); lines != 1 {
		t.Errorf("the open breaker is logged %d times, want once:\n%s", lines, l.Text())
	}
}

// A loop that hangs is detected within seconds without a request to it. Before its first turn and
// after its last one it is not running.
func TestALoopThatHangsIsKnown(t *testing.T) {
	l := newLoop(t, "", nil)
	if _, why, runs := l.publisher.lastTurn(); runs || why == "" {
		t.Errorf("before the start: running %v, reason %q", runs, why)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.run(ctx) }()
	for {
		if ago, _, runs := l.publisher.lastTurn(); runs && ago < time.Second {
			break
		}
		runtime.Gosched()
	}
	cancel()
	<-done
	if _, _, runs := l.publisher.lastTurn(); runs {
		t.Error("the loop is reported as running after its end")
	}
	l.publisher.recordTurn()
	l.publisher.began = l.publisher.began.Add(-8 * time.Second) // it has not turned since
	if ago, _, runs := l.publisher.lastTurn(); !runs || ago < 8*time.Second {
		t.Errorf("loop that hangs: last turn %v ago, running %v", ago, runs)
	}
	e := endpoints.New(endpoints.Options{LoopAge: l.publisher.lastTurn})
	w := httptest.NewRecorder()
	e.Find(api.PathReady)(w, httptest.NewRequest(http.MethodGet, api.PathReady, nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("readiness of a loop that hangs = %d %s, want 503", w.Code, w.Body)
	}
}

// state returns the State that would be published now.
func (l *testLoop) state() *api.State {
	now := time.Now()
	ready := l.manager.Ready(now)
	return l.publisher.make(now, l.loop, &ready)
}
