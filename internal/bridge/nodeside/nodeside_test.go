package nodeside

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/internal/bridge/verdict"
)

// world is an agent and an API server in virtual time.
type world struct {
	minor int

	mu            sync.Mutex
	state         *api.State              // nil: the agent is unreachable
	events        chan api.Event          // the agent's events
	requests      map[string]int          // requests to the API server
	createdEvents []string                // reasons of created events in their order
	node          v1.Node                 // in the API
	lease         bool                    // the Lease exists
	fault         func(what string) error // nil: none
	old           bool                    // the API server is older than 1.30
	log           strings.Builder
}

func newWorld() *world {
	return &world{state: &api.State{Kubelet: true}, events: make(chan api.Event), requests: map[string]int{}}
}

// during runs a Reporter in virtual time while do changes the world.
func during(t *testing.T, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := New(Options{
			Node: "n1", Namespace: "jettison-system", Period: 5 * time.Minute, Agent: w, API: w, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
			CanRestrict: func(context.Context) (bool, error) {
				return !w.old, w.request("version")
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { s.Run(ctx) })
		do(w)
		cancel()
		run.Wait()
	})
}

// set changes the world under the lock.
func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// inspect returns get's result under the lock when all goroutines are blocked.
func inspect[T any](w *world, get func() T) T {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return get()
}

func (w *world) State(context.Context) (*api.State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == nil {
		return nil, errors.New("no agent")
	}
	s := *w.state
	s.Time = time.Now()
	return &s, nil
}

func (w *world) Events(ctx context.Context, _ api.EventOptions, each func(api.Event) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-w.events:
			if err := each(e); err != nil {
				return err
			}
		}
	}
}

func (w *world) AgentMinor() int { return w.minor }

func (w *world) request(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests[what]++
	if w.fault != nil {
		return w.fault(what)
	}
	return nil
}

func (w *world) Node(context.Context, string) (*v1.Node, error) {
	if err := w.request("get node"); err != nil {
		return nil, err
	}
	return w.node.DeepCopy(), nil
}

func (w *world) PatchNodeStatus(_ context.Context, _ string, body []byte) (*v1.Node, error) {
	if err := w.request("patch node"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := json.Unmarshal(body, &w.node); err != nil { // the node has no other conditions
		return nil, err
	}
	return w.node.DeepCopy(), nil
}

func (w *world) PatchLease(_ context.Context, _, _ string, body []byte) error {
	what := "patch lease"
	if strings.Contains(string(body), "ownerReferences") {
		what += " with its owner"
	}
	if err := w.request(what); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.lease {
		return status(http.StatusNotFound)
	}
	return nil
}

func (w *world) CreateLease(context.Context, *coordinationv1.Lease) error {
	err := w.request("create lease")
	w.set(func() { w.lease = w.lease || err == nil })
	return err
}

func (w *world) CreateEvent(_ context.Context, e *v1.Event) error {
	if err := w.request("event " + e.Reason); err != nil {
		return err
	}
	w.set(func() { w.createdEvents = append(w.createdEvents, e.Reason) })
	return nil
}

func status(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }

func loaded(percent uint64) *api.State {
	whole := uint64(1000)
	used := 10 * percent
	return &api.State{Kubelet: true, Load: &api.LoadState{Memory: api.MemoryLoad{CapacityBytes: &whole, WorkingSetBytes: &used}}}
}

// conditions returns the conditions of the node as text.
func (w *world) conditions() string {
	var out []string
	for _, c := range w.node.Status.Conditions {
		out = append(out, strings.TrimPrefix(string(c.Type), verdict.ConditionPrefix)+"="+string(c.Status))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// At rest there is less than one write a minute. The load is written after a change, at most each
// minute, and every five minutes.
func TestRequestsAtRest(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.state = loaded(50) })
		time.Sleep(time.Hour)
		asked := inspect(w, func() map[string]int { return w.requests })
		if n := asked["patch node"] + asked["get node"]; n < 12 || n > 14 {
			t.Errorf("conditions written %d times in an hour, want one per heartbeat", n)
		}
		if n := asked["patch lease with its owner"] + asked["create lease"]; n < 12 || n > 15 {
			t.Errorf("load written %d times in an hour, want one per five minutes", n)
		}
		if len(asked) != 5 || asked["version"] != 1 {
			t.Errorf("requests %v, want no others", asked)
		}
	})
	during(t, func(w *world) { // only clients that may delete a Lease may set its owner
		w.set(func() {
			w.state, w.lease = loaded(50), true
			w.fault = func(what string) error {
				if what == "patch lease with its owner" {
					return status(http.StatusForbidden)
				}
				return nil
			}
		})
		time.Sleep(time.Hour)
		asked := inspect(w, func() map[string]int { return w.requests })
		if n := asked["patch lease"]; asked["patch lease with its owner"] != n || n < 12 || n > 15 || strings.Contains(w.log.String(), "write failed") {
			t.Errorf("requests %v, log %s, want one write without owner each time", asked, &w.log)
		}
	})
	during(t, func(w *world) { // the load changes all the time
		for i := range 360 {
			w.set(func() { w.state = loaded(20 + 40*uint64(i%2)) })
			time.Sleep(10 * time.Second)
		}
		if n := inspect(w, func() int { return w.requests["patch lease with its owner"] }); n < 40 || n > 61 {
			t.Errorf("changing load written %d times in an hour, want one a minute", n)
		}
	})
}

// A condition is written when the agent reports its change, and becomes Unknown when the agent does
// not respond.
func TestConditionsAreWritten(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Minute)
		const none, all = "DiskPressure=False MemoryPressure=False PIDPressure=False", "DiskPressure=Unknown MemoryPressure=Unknown PIDPressure=Unknown"
		if got := inspect(w, w.conditions); got != none {
			t.Errorf("conditions %s, want no pressure", got)
		}
		w.set(func() {
			w.state = &api.State{Kubelet: true, Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: true}}}
		})
		w.events <- api.Event{Seq: 1, Time: time.Now(), Kind: api.EventCondition}
		if got := inspect(w, w.conditions); !strings.Contains(got, "MemoryPressure=True") {
			t.Errorf("conditions after a change: %s, want pressure", got)
		}
		w.set(func() { w.state = nil })
		time.Sleep(verdict.AgentTimeout + readInterval)
		if got := inspect(w, w.conditions); got != all {
			t.Errorf("conditions of a silent agent: %s, want Unknown", got)
		}
	})
}

// A new bridge whose agent does not respond sets an earlier bridge's conditions to Unknown once,
// and adds none.
func TestConditionsOfAnEarlierBridge(t *testing.T) {
	for was, want := range map[string]string{"": "", "MemoryPressure": "MemoryPressure=Unknown"} {
		during(t, func(w *world) {
			w.set(func() {
				w.state = nil
				if was != "" {
					w.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeConditionType(verdict.ConditionPrefix + was), Status: v1.ConditionTrue}}
				}
			})
			time.Sleep(verdict.AgentTimeout)
			if got := inspect(w, func() int { return len(w.requests) }); got > 0 {
				t.Errorf("%d patches before the agent's timeout, want none", got)
			}
			time.Sleep(time.Hour)
			asked := inspect(w, func() map[string]int { return w.requests })
			if got := inspect(w, w.conditions); got != want || asked["get node"]+asked["patch node"] > 2 || asked["version"] > 1 || len(asked) > 3 {
				t.Errorf("conditions %q, requests %v, want one patch to Unknown", got, asked)
			}
		})
	}
}

// A rejected part does not delay others: a condition is written although all events are rejected.
func TestRejectedEventDoesNotDelayConditions(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.state.BreakerOpen = "evictions do not help"
			w.fault = func(what string) error {
				if strings.HasPrefix(what, "event") {
					return status(http.StatusForbidden)
				}
				return nil
			}
		})
		for i := range uint64(20) { // one of them comes during a backoff
			time.Sleep(7 * time.Minute)
			w.set(func() {
				w.state = &api.State{
					Kubelet: true, BreakerOpen: "evictions do not help", Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: i%2 == 0}},
				}
			})
			w.events <- api.Event{Seq: i + 1, Time: time.Now(), Kind: api.EventCondition}
			want := "MemoryPressure=" + map[bool]string{true: "True", false: "False"}[i%2 == 0]
			if got := inspect(w, w.conditions); !strings.Contains(got, want) {
				t.Fatalf("conditions %s, want %s", got, want)
			}
		}
	})
}

// A Retry-After of the API server is respected.
func TestRetryAfter(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.state = loaded(50)
			w.fault = func(string) error { return apierrors.NewTooManyRequests("later", 240) }
		})
		time.Sleep(20 * time.Minute)
		n := 0
		for _, asked := range inspect(w, func() map[string]int { return w.requests }) {
			n += asked
		}
		if n < 4 || n > 6 {
			t.Errorf("%d requests in twenty minutes, want fewer", n)
		}
	})
}

// The agent's version is logged once, with a warning if the skew is too large.
func TestAgentVersionIsLogged(t *testing.T) {
	for minor, want := range map[int]string{
		api.Minor - 1: "INFO msg=\"agent connected\" version=1.2.3", api.Minor: "INFO msg=\"agent connected\"", api.Minor + 1: "INFO",
		api.Minor + 2: "WARN msg=\"agent version skew too large",
	} {
		var text strings.Builder
		w := newWorld()
		w.minor, w.state.Version = minor, "1.2.3"
		s := New(Options{Agent: w, Log: slog.New(slog.NewTextHandler(&text, nil))})
		s.readState(t.Context())
		s.readState(t.Context())
		if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level="+want) {
			t.Errorf("minor version %d: log is %s, want one line with level %s", minor, got, want)
		}
	}
}

// Failing requests are retried with backoff, and rejected ones do not delay others.
func TestFailuresAreRetried(t *testing.T) {
	for name, fault := range map[string]error{
		"refuses connections": errors.New("connection refused"), "is overloaded": apierrors.NewTooManyRequests("later", 1),
		"has a defect": status(http.StatusInternalServerError), "knows another version": status(http.StatusConflict),
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world) {
				w.set(func() {
					w.state = loaded(50)
					w.fault = func(string) error { return fault }
				})
				time.Sleep(time.Hour)
				n := 0
				for _, asked := range inspect(w, func() map[string]int { return w.requests }) {
					n += asked
				}
				if n < 60 || n > 400 {
					t.Errorf("%d requests in an hour, want backoff", n)
				}
				w.set(func() { w.fault = nil })
				time.Sleep(2 * time.Minute)
				if got := inspect(w, w.conditions); got == "" || !w.lease {
					t.Errorf("conditions %q, lease written %v, want both written", got, w.lease)
				}
			})
		})
	}
}

// A rejected event does not delay others, and is retried.
func TestRejectedEvent(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.state = &api.State{Kubelet: true, BreakerOpen: "evictions do not help", Headroom: api.HeadroomState{ThresholdBytes: 1, NeededBytes: 2}}
			w.fault = func(what string) error {
				if what == "event EvictionsStopped" || what == "event GarbageCollectionFailed" {
					return status(http.StatusUnprocessableEntity)
				}
				return nil
			}
		})
		w.events <- api.Event{Seq: 1, Time: time.Now(), Kind: api.EventGarbage, Message: api.MessageGarbageFails}
		time.Sleep(5 * time.Minute)
		if got := inspect(w, func() []string { return slices.Clone(w.createdEvents) }); !slices.Equal(got, []string{"EvictionHeadroomTooSmall"}) {
			t.Errorf("events %v, want the accepted one", got)
		}
		w.set(func() { w.fault = nil })
		time.Sleep(2 * time.Minute)
		got := inspect(w, func() []string { return slices.Sorted(slices.Values(w.createdEvents)) })
		if !slices.Equal(got, []string{"EvictionHeadroomTooSmall", "EvictionsStopped", "GarbageCollectionFailed"}) {
			t.Errorf("events %v, want both", got)
		}
	})
}

// An API server that cannot restrict a bridge to its node gets events only.
func TestServerTooOld(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.old, w.state = true, loaded(50)
			w.state.BreakerOpen = "evictions do not help"
		})
		time.Sleep(time.Hour)
		asked := inspect(w, func() map[string]int { return maps.Clone(w.requests) })
		if asked["version"] != 1 || asked["get node"]+asked["patch node"]+asked["patch lease"]+asked["patch lease with its owner"] != 0 || !slices.Contains(w.createdEvents, "EvictionsStopped") {
			t.Errorf("requests %v, events %v, want events only", asked, w.createdEvents)
		}
	})
}

// A failure of the API server is logged once, and so is its recovery.
func TestRecoveryIsLogged(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.state = loaded(50)
			w.fault = func(string) error { return errors.New("connection refused") }
		})
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(10 * time.Minute)
		log := inspect(w, w.log.String)
		for _, want := range []string{"node state write failed, retrying", "node state written again"} {
			if n := strings.Count(log, want+`" what=conditions`); n != 1 {
				t.Errorf("%q is logged %d times, want once:\n%s", want, n, log)
			}
		}
	})
}
