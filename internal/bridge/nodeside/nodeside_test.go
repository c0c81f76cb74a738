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

// world is an agent and an API in virtual time.
type world struct {
	minor int

	mu     sync.Mutex
	state  *api.State              // nil: the agent is away
	events chan api.Event          // of the agent
	asked  map[string]int          // requests to the API
	told   []string                // reasons of events that the API has, in their order
	node   v1.Node                 // as the API has it
	lease  bool                    // the API has it
	fault  func(what string) error // nil: none
	old    bool                    // the API server is older than 1.30
	log    strings.Builder
}

func newWorld() *world {
	return &world{state: &api.State{Kubelet: true}, events: make(chan api.Event), asked: map[string]int{}}
}

// during tells in virtual time while a test does something.
func during(t *testing.T, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := New(Options{
			Node: "n1", Namespace: "jettison-system", Period: 5 * time.Minute, Agent: w, API: w, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
			CanRestrict: func(context.Context) (bool, error) {
				return !w.old, w.ask("version")
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

// set changes what there is.
func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// is asks for something when nothing moves.
func is[T any](w *world, get func() T) T {
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

func (w *world) ask(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[what]++
	if w.fault != nil {
		return w.fault(what)
	}
	return nil
}

func (w *world) Node(context.Context, string) (*v1.Node, error) {
	if err := w.ask("get node"); err != nil {
		return nil, err
	}
	return w.node.DeepCopy(), nil
}

func (w *world) PatchNodeStatus(_ context.Context, _ string, body []byte) (*v1.Node, error) {
	if err := w.ask("patch node"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := json.Unmarshal(body, &w.node); err != nil { // which has no conditions but these
		return nil, err
	}
	return w.node.DeepCopy(), nil
}

func (w *world) PatchLease(_ context.Context, _, _ string, body []byte) error {
	what := "patch lease"
	if strings.Contains(string(body), "ownerReferences") {
		what += " with its owner"
	}
	if err := w.ask(what); err != nil {
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
	err := w.ask("create lease")
	w.set(func() { w.lease = w.lease || err == nil })
	return err
}

func (w *world) CreateEvent(_ context.Context, e *v1.Event) error {
	if err := w.ask("event " + e.Reason); err != nil {
		return err
	}
	w.set(func() { w.told = append(w.told, e.Reason) })
	return nil
}

func status(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }

func loaded(percent uint64) *api.State {
	whole := uint64(1000)
	used := 10 * percent
	return &api.State{Kubelet: true, Load: &api.LoadState{Memory: api.MemoryLoad{CapacityBytes: &whole, WorkingSetBytes: &used}}}
}

// The conditions of the node, as words.
func (w *world) conditions() string {
	var out []string
	for _, c := range w.node.Status.Conditions {
		out = append(out, strings.TrimPrefix(string(c.Type), verdict.ConditionPrefix)+"="+string(c.Status))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// At rest the API hears of a node less than once a minute; loads come when a figure moves, not sooner than a minute after the last, and each
// five minutes.
func TestWhatIsAskedOfTheAPI(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() { w.state = loaded(50) })
		time.Sleep(time.Hour)
		asked := is(w, func() map[string]int { return w.asked })
		if n := asked["patch node"] + asked["get node"]; n < 12 || n > 14 {
			t.Errorf("of the node's conditions %d times in an hour", n)
		}
		if n := asked["patch lease with its owner"] + asked["create lease"]; n < 12 || n > 15 {
			t.Errorf("of its load %d times in an hour", n)
		}
		if len(asked) != 5 || asked["version"] != 1 {
			t.Errorf("%v", asked)
		}
	})
	during(t, func(w *world) { // only who may delete a Lease may give it an owner
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
		asked := is(w, func() map[string]int { return w.asked })
		if n := asked["patch lease"]; asked["patch lease with its owner"] != n || n < 12 || n > 15 || strings.Contains(w.log.String(), "write failed") {
			t.Errorf("%v, %s", asked, &w.log)
		}
	})
	during(t, func(w *world) { // it moves all the time
		for i := range 360 {
			w.set(func() { w.state = loaded(20 + 40*uint64(i%2)) })
			time.Sleep(10 * time.Second)
		}
		if n := is(w, func() int { return w.asked["patch lease with its owner"] }); n < 40 || n > 61 {
			t.Errorf("of a load that moves %d times in an hour", n)
		}
	})
}

// A condition is told as soon as the agent says that it has changed, and goes when the agent is silent.
func TestConditionsAreTold(t *testing.T) {
	during(t, func(w *world) {
		time.Sleep(time.Minute)
		const none, all = "DiskPressure=False MemoryPressure=False PIDPressure=False", "DiskPressure=Unknown MemoryPressure=Unknown PIDPressure=Unknown"
		if got := is(w, w.conditions); got != none {
			t.Error(got)
		}
		w.set(func() {
			w.state = &api.State{Kubelet: true, Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: true}}}
		})
		w.events <- api.Event{Seq: 1, Time: time.Now(), Kind: api.EventCondition}
		if got := is(w, w.conditions); !strings.Contains(got, "MemoryPressure=True") {
			t.Errorf("at once: %s", got)
		}
		w.set(func() { w.state = nil })
		time.Sleep(verdict.AgentTimeout + readInterval)
		if got := is(w, w.conditions); got != all {
			t.Errorf("an agent that is silent: %s", got)
		}
	})
}

// A bridge that comes to a node whose agent says nothing takes back what the one before it wrote, once, and writes nothing where nothing is.
func TestConditionsOfABridgeBefore(t *testing.T) {
	for was, want := range map[string]string{"": "", "MemoryPressure": "MemoryPressure=Unknown"} {
		during(t, func(w *world) {
			w.set(func() {
				w.state = nil
				if was != "" {
					w.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeConditionType(verdict.ConditionPrefix + was), Status: v1.ConditionTrue}}
				}
			})
			time.Sleep(verdict.AgentTimeout)
			if got := is(w, func() int { return len(w.asked) }); got > 0 {
				t.Errorf("too soon: %d", got)
			}
			time.Sleep(time.Hour)
			asked := is(w, func() map[string]int { return w.asked })
			if got := is(w, w.conditions); got != want || asked["get node"]+asked["patch node"] > 2 || asked["version"] > 1 || len(asked) > 3 {
				t.Errorf("%q, asked %v", got, asked)
			}
		})
	}
}

// What is refused of one part holds up no other: a condition is told at once though no event is taken.
func TestARefusedEventHoldsUpNoCondition(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.state.Stopped = "it does not help"
			w.fault = func(what string) error {
				if strings.HasPrefix(what, "event") {
					return status(http.StatusForbidden)
				}
				return nil
			}
		})
		for i := range uint64(20) { // one of them falls into a pause
			time.Sleep(7 * time.Minute)
			w.set(func() {
				w.state = &api.State{
					Kubelet: true, Stopped: "it does not help", Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: i%2 == 0}},
				}
			})
			w.events <- api.Event{Seq: i + 1, Time: time.Now(), Kind: api.EventCondition}
			want := "MemoryPressure=" + map[bool]string{true: "True", false: "False"}[i%2 == 0]
			if got := is(w, w.conditions); !strings.Contains(got, want) {
				t.Fatalf("%s, want %s", got, want)
			}
		}
	})
}

// An API that says when it wants to be asked again is not asked before.
func TestAnAPIThatAsksForTime(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.state = loaded(50)
			w.fault = func(string) error { return apierrors.NewTooManyRequests("later", 240) }
		})
		time.Sleep(20 * time.Minute)
		n := 0
		for _, asked := range is(w, func() map[string]int { return w.asked }) {
			n += asked
		}
		if n < 4 || n > 6 {
			t.Errorf("it is asked %d times in twenty minutes", n)
		}
	})
}

// Whom it speaks to is said once, and whether they may not understand each other.
func TestWhomItSpeaksTo(t *testing.T) {
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
			t.Errorf("%d: %s", minor, got)
		}
	}
}

// What an API does badly is tried again, less and less often, and what it refuses keeps nothing else from being told.
func TestAnAPIThatMisbehaves(t *testing.T) {
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
				for _, asked := range is(w, func() map[string]int { return w.asked }) {
					n += asked
				}
				if n < 60 || n > 400 {
					t.Errorf("it is asked %d times in an hour", n)
				}
				w.set(func() { w.fault = nil })
				time.Sleep(2 * time.Minute)
				if got := is(w, w.conditions); got == "" || !w.lease {
					t.Errorf("conditions %q, lease %v", got, w.lease)
				}
			})
		})
	}
}

// An event that is refused keeps no other waiting, and is sent when it is taken.
func TestAnEventThatIsRefused(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.state = &api.State{Kubelet: true, Stopped: "it does not help", Headroom: api.HeadroomState{ThresholdBytes: 1, NeededBytes: 2}}
			w.fault = func(what string) error {
				if what == "event EvictionsStopped" || what == "event GarbageCollectionFailed" {
					return status(http.StatusUnprocessableEntity)
				}
				return nil
			}
		})
		w.events <- api.Event{Seq: 1, Time: time.Now(), Kind: api.EventGarbage, Message: api.MessageGarbageFails}
		time.Sleep(5 * time.Minute)
		if got := is(w, func() []string { return slices.Clone(w.told) }); !slices.Equal(got, []string{"EvictionHeadroomTooSmall"}) {
			t.Errorf("told %v", got)
		}
		w.set(func() { w.fault = nil })
		time.Sleep(2 * time.Minute)
		got := is(w, func() []string { return slices.Sorted(slices.Values(w.told)) })
		if !slices.Equal(got, []string{"EvictionHeadroomTooSmall", "EvictionsStopped", "GarbageCollectionFailed"}) {
			t.Errorf("told %v", got)
		}
	})
}

// An API server that cannot hold a bridge to its node is told events alone.
func TestAnAPIThatIsTooOld(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.old, w.state = true, loaded(50)
			w.state.Stopped = "it does not help"
		})
		time.Sleep(time.Hour)
		asked := is(w, func() map[string]int { return maps.Clone(w.asked) })
		if asked["version"] != 1 || asked["get node"]+asked["patch node"]+asked["patch lease"]+asked["patch lease with its owner"] != 0 || !slices.Contains(w.told, "EvictionsStopped") {
			t.Errorf("asked %v, told %v", asked, w.told)
		}
	})
}

// That the API fails is said once, and so is that it does not any more.
func TestAnAPIThatIsBackIsNamed(t *testing.T) {
	during(t, func(w *world) {
		w.set(func() {
			w.state = loaded(50)
			w.fault = func(string) error { return errors.New("connection refused") }
		})
		time.Sleep(10 * time.Minute)
		w.set(func() { w.fault = nil })
		time.Sleep(10 * time.Minute)
		log := is(w, w.log.String)
		for _, want := range []string{"node state write failed, retrying", "node state written again"} {
			if n := strings.Count(log, want+`" what=conditions`); n != 1 {
				t.Errorf("%q is said %d times: %s", want, n, log)
			}
		}
	})
}
