package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"jettison/admit"
	"jettison/api"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/repeat"
	"jettison/stats"
	"jettison/stats/read"
)

// ward is a node of ten pods at most and the loop on it. Pods are told apart by their UIDs.
type ward struct {
	*Preempting
	m       *eviction.Manager
	now     time.Time
	most    int64
	pods    []admit.Held
	lives   map[string]*eviction.Life
	stopped []string // UIDs, in the order in which they were stopped
	reason  string
	kubelet bool
	refuse  error // that a victim cannot be pinned
	unknown error // why the node is not known
	// published is for whom room was kept when that was published last.
	published []string
}

func newWard(most int64, pods ...string) *ward {
	w := &ward{m: eviction.NewManager(eviction.Config{}), now: time.Unix(1000, 0), most: most, lives: map[string]*eviction.Life{}}
	for i, uid := range pods {
		w.pods = append(w.pods, admit.Held{UID: types.UID(uid), Name: uid, Namespace: "default", QOS: stats.BestEffort, Created: w.now.Add(time.Duration(i))})
	}
	w.Preempting = NewPreempting(PreemptOptions{
		Wanted: true, Kubelet: func() bool { return w.kubelet }, State: w.state, Publish: func(time.Time) { w.published = w.kept() }, Stop: w.stop, Life: w.m.Life,
		Why: func(*eviction.Life) string { return "the kernel holds it" }, Name: func(p stats.PodReference) string { return p.Namespace + "/" + p.Name },
		Log: repeat.New(slog.New(slog.NewTextHandler(io.Discard, nil))),
	})
	return w
}

func (w *ward) state(now time.Time) (n admit.NodeState, err error) {
	n.Allocatable = v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(w.most, resource.DecimalSI)}
	for _, h := range w.pods {
		if l := w.lives[string(h.UID)]; l != nil {
			if back, over := l.Room(now); back {
				continue
			} else if h.Ending = !over; over {
				h.Spared = true
			}
		}
		n.Pods = append(n.Pods, h)
	}
	n.Promised = w.Promised(now)
	return n, w.unknown
}

func (w *ward) stop(_ context.Context, now time.Time, uids []string, reason string) (out []*eviction.Life, err error) {
	if w.refuse != nil {
		return nil, w.refuse
	}
	for _, uid := range uids {
		pod := stats.PodStats{PodRef: stats.PodReference{UID: uid}, SandboxIDs: []string{uid}}
		l := w.m.Begin(eviction.Stamp{Time: now}, eviction.Preempted(&pod, nil, "", ""), eviction.Met{})
		w.lives[uid] = l
		out = append(out, l)
	}
	w.stopped, w.reason = append(w.stopped, uids...), reason
	return out, nil
}

func (w *ward) dead(uid string) { w.m.Emptied(eviction.Stamp{Time: w.now}, w.lives[uid]) }

// critical is a pod of system priority, ordinary one of none.
func critical(uid string) admit.PodAttributes { return priority(uid, systemCriticalPriority) }
func ordinary(uid string) admit.PodAttributes { return priority(uid, 0) }
func priority(uid string, priority int32) admit.PodAttributes {
	return admit.PodAttributes{Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid, Namespace: "kube-system"}, Spec: v1.PodSpec{Priority: &priority},
	}}
}

// asked is what a client gets.
type asked chan answer

// ask has a client ask, and the loop take it.
func (w *ward) ask(ctx context.Context, pod admit.PodAttributes) asked {
	out := make(asked, 1)
	go func() {
		result, err := w.Preempt(ctx, pod)
		out <- answer{result, err}
	}()
	w.OnAsk(ctx, w.now, <-w.Asks())
	return out
}

// still fails where a client was answered.
func (w *ward) still(t *testing.T, a asked) {
	t.Helper()
	select {
	case got := <-a:
		t.Fatalf("answered already: %+v", got)
	default:
	}
}

// says holds what a State has of preemption against what it should.
func (w *ward) says(t *testing.T, want api.GateState) {
	t.Helper()
	var got api.GateState
	if w.Fill(w.now, &got); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func (w *ward) kept() (out []string) {
	for _, h := range w.Promised(w.now) {
		out = append(out, string(h.UID))
	}
	return out
}

// The fewest go, at once; the answer comes when all of them are dead, and the room is kept from the first kill until 30 s after the last.
func TestRoomIsMadeAndKept(t *testing.T) {
	w := newWard(3, "a", "b", "c", "d") // one too many already
	a := w.ask(t.Context(), critical("x"))
	if !slices.Equal(w.stopped, []string{"d", "c"}) || !slices.Equal(w.kept(), []string{"x"}) {
		t.Fatalf("stopped %v, kept for %v", w.stopped, w.kept())
	}
	if !strings.Contains(w.reason, "room for pod kube-system/x: Node didn't have enough resource: pods") {
		t.Errorf("reason %q", w.reason)
	}
	x, began := stats.PodReference{UID: "x", Namespace: "kube-system", Name: "x"}, w.now
	want := api.GateState{Making: []api.MakingState{{
		Pod: x, Began: began, Message: "Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 3",
		Victims: []stats.PodReference{{UID: "d", Namespace: "default", Name: "d"}, {UID: "c", Namespace: "default", Name: "c"}},
	}}}
	w.says(t, want)
	if !w.Advance(w.now) || w.Advance(w.now) {
		t.Error("a change is told other than once")
	}
	w.now = w.now.Add(time.Minute)
	w.Advance(w.now)
	w.dead("d")
	if w.Advance(w.now); !slices.Equal(w.kept(), []string{"x"}) {
		t.Errorf("a long grace period: kept for %v", w.kept())
	}
	w.still(t, a)
	w.dead("c")
	w.now = w.now.Add(time.Second)
	w.Advance(w.now)
	if got := <-a; got.err != nil || !got.result.Admit {
		t.Fatalf("%+v", got)
	}
	w.now = w.now.Add(admit.PromisedFor - 1)
	if w.Advance(w.now) || len(w.kept()) != 1 {
		t.Errorf("kept for %v", w.kept())
	}
	w.says(t, api.GateState{Kept: []api.KeptState{{Pod: x, Until: w.now.Add(1)}}, RoomMade: 1})
	w.now = w.now.Add(1)
	if !w.Advance(w.now) || len(w.kept()) != 0 {
		t.Errorf("kept for ever: %v", w.kept())
	}
	w.says(t, api.GateState{RoomMade: 1})
}

// Room is kept for a pod until it runs: from then on that holds it, and what it leaves when it ends is anybody's. While room is being made for
// a pod whose sandbox is there already nothing of that is given up.
func TestRoomIsKeptUntilThePodRuns(t *testing.T) {
	w := newWard(1, "a")
	runs := func(ready bool) read.Index {
		return read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: "x", Namespace: "kube-system", Name: "x", Ready: ready}}})
	}
	a := w.ask(t.Context(), critical("x"))
	w.OnPods(runs(true))
	if !slices.Equal(w.kept(), []string{"x"}) {
		t.Errorf("its victim lives: kept for %v", w.kept())
	}
	w.dead("a")
	w.Advance(w.now)
	if got := <-a; !got.result.Admit {
		t.Fatalf("%+v", got)
	}
	w.Advance(w.now)
	w.OnPods(nil)
	if w.OnPods(runs(false)); w.Advance(w.now) || !slices.Equal(w.kept(), []string{"x"}) {
		t.Errorf("it does not run: kept for %v", w.kept())
	}
	if w.OnPods(runs(true)); !w.Advance(w.now) || len(w.kept()) > 0 {
		t.Errorf("it runs: kept for %v", w.kept())
	}
}

// J11, otherwise than the kubelet: a kill that failed is a rejection with its reason. No room is kept; the runtime is told why for a while.
func TestAFailedKillIsARejection(t *testing.T) {
	w := newWard(2, "a", "b", "c")
	a := w.ask(t.Context(), critical("x"))
	w.dead("c")
	w.m.Refused(w.now, w.lives["b"])
	w.Advance(w.now)
	got := <-a
	if got.err != nil || got.result.Admit || got.result.Reason != admit.ReasonUnexpected ||
		!strings.HasSuffix(got.result.Message, "preemption: pod default/b was not killed: the kernel holds it") {
		t.Errorf("%+v", got)
	}
	if len(w.kept()) > 0 {
		t.Errorf("kept for %v", w.kept())
	}
	w.says(t, api.GateState{RoomFailed: 1})
	w.notes.set(w.now, "other", "y")
	if text := w.notes.of(w.now.Add(noteFor-1), "x"); !strings.Contains(text, "the kernel holds it") || w.notes.of(w.now.Add(noteFor), "x") != "" {
		t.Errorf("note %q", text)
	}
}

// The runtime is not kept waiting: neither by kills nor by a loop that does not answer. Only critical pods are told of.
func TestTheRuntimeDoesNotWait(t *testing.T) {
	w := newWard(1, "a")
	if note := w.Want(ordinary("o")); note != "" || len(w.asks) > 0 {
		t.Errorf("ordinary: %q, %d", note, len(w.asks))
	}
	if note := w.Want(critical("")); note != "" || len(w.asks) > 0 {
		t.Errorf("without a UID: %q, %d", note, len(w.asks))
	}
	for i := range 2 * maxAsks {
		if note := w.Want(critical("x")); note != "; room is made for it, if others may go: ask again" || len(w.asks) != min(i+1, maxAsks) {
			t.Fatalf("%q, %d", note, len(w.asks))
		}
	}
	for range maxAsks {
		w.OnAsk(t.Context(), w.now, <-w.Asks())
	}
	if len(w.stopped) != 1 || len(w.making) != 1 || len(w.making[0].waiting) > 0 {
		t.Errorf("stopped %v for one pod, %d waiting", w.stopped, len(w.making[0].waiting))
	}
	w.most = 3
	w.OnAsk(t.Context(), w.now, ask{pod: critical("late")}) // there is room by now
	if !slices.Contains(w.kept(), "late") {
		t.Errorf("kept for %v", w.kept())
	}
	w.promises.Drop("late")
	w.most = 1
	w.m.Refused(w.now, w.lives["a"])
	w.Advance(w.now)
	w.notes.set(time.Now(), "x", "because") // the runtime's clock
	if note := w.Want(critical("x")); note != "; no room could be made: because" {
		t.Errorf("%q", note)
	}
	w.o.Wanted = false
	if note := w.Want(critical("y")); note != "" || len(w.asks) != 1 {
		t.Errorf("switched off: %q", note)
	}
}

// A later attempt at a victim counts in the place of the first, which was given up for it: room that one gives is room.
func TestALaterAttemptAtAVictimCounts(t *testing.T) {
	w := newWard(2, "a", "b")
	if _, err := w.stop(t.Context(), w.now, []string{"a"}, "memory is short"); err != nil {
		t.Fatal(err)
	}
	first, second := w.ask(t.Context(), critical("x")), w.ask(t.Context(), critical("y")) // x awaits a, for y goes b
	if !slices.Equal(w.stopped, []string{"a", "b"}) {
		t.Fatalf("stopped %v", w.stopped)
	}
	for _, uid := range []string{"a", "b"} { // as a hard threshold does, where the kernel refuses to cut the grace period short
		if _, err := w.stop(t.Context(), w.now, []string{uid}, "memory is short"); err != nil {
			t.Fatal(err)
		}
	}
	w.Advance(w.now)
	w.still(t, first)
	w.still(t, second)
	w.dead("a")
	w.dead("b")
	w.Advance(w.now)
	for _, a := range []asked{first, second} {
		if got := <-a; !got.result.Admit {
			t.Errorf("%+v", got)
		}
	}
}

// Notes are bounded, whoever asks.
func TestNotesAreBounded(t *testing.T) {
	var n notes
	now := time.Now()
	for i := range 3 * maxNotes {
		uid := types.UID(fmt.Sprint("x", i))
		if n.set(now, uid, "because"); len(n.by) > maxNotes || n.of(now, uid) != "because" {
			t.Fatalf("%d notes after %d", len(n.by), i)
		}
	}
}

// A victim that is dead is over, whatever becomes of its UID: what came back under it and is being stopped is not waited for.
func TestADeadVictimIsOver(t *testing.T) {
	w := newWard(1, "a")
	a := w.ask(t.Context(), critical("x"))
	w.dead("a")
	if _, err := w.stop(t.Context(), w.now, []string{"a"}, "it came back, and memory is short"); err != nil {
		t.Fatal(err)
	}
	w.Advance(w.now)
	if got := <-a; got.result.Admit || got.result.Reason != "OutOfpods" || len(w.making) > 0 {
		t.Errorf("%+v", got)
	}
}

// Who asks for the same pod meanwhile gets the same answer, and nobody else goes.
func TestOneRoomForOnePod(t *testing.T) {
	w := newWard(1, "a")
	first, second := w.ask(t.Context(), critical("x")), w.ask(t.Context(), critical("x"))
	w.dead("a")
	w.Advance(w.now)
	for _, a := range []asked{first, second} {
		if got := <-a; !got.result.Admit || got.err != nil {
			t.Errorf("%+v", got)
		}
	}
	if len(w.stopped) != 1 {
		t.Errorf("stopped %v", w.stopped)
	}
}

// What one pod's victims leave is not another's.
func TestTwoPodsDoNotShareARoom(t *testing.T) {
	w := newWard(2, "a", "b")
	first, second := w.ask(t.Context(), critical("x")), w.ask(t.Context(), critical("y"))
	if !slices.Equal(w.stopped, []string{"b", "a"}) || len(w.kept()) != 2 {
		t.Fatalf("stopped %v, kept for %v", w.stopped, w.kept())
	}
	third := w.ask(t.Context(), critical("z"))
	if got := <-third; got.result.Admit || got.err != nil || !strings.Contains(got.result.Message, "no set of running pods") {
		t.Errorf("nobody is left: %+v", got)
	}
	w.dead("b")
	w.Advance(w.now)
	if got := <-first; !got.result.Admit {
		t.Errorf("%+v", got)
	}
	w.still(t, second)
	w.dead("a")
	w.Advance(w.now)
	if got := <-second; !got.result.Admit {
		t.Errorf("%+v", got)
	}
}

// Room that an eviction under way will give is waited for, and nobody else goes for it.
func TestRoomThatIsComingIsAwaited(t *testing.T) {
	w := newWard(2, "a", "b")
	if _, err := w.stop(t.Context(), w.now, []string{"a"}, "memory is short"); err != nil {
		t.Fatal(err)
	}
	a := w.ask(t.Context(), critical("x"))
	w.Advance(w.now)
	w.still(t, a)
	w.dead("a")
	w.Advance(w.now)
	if got := <-a; !got.result.Admit || len(w.stopped) != 1 {
		t.Errorf("%+v, stopped %v", got, w.stopped)
	}
}

// What is no preemption is answered at once: there is room, the pod is not critical, a kubelet is here, nobody can be pinned, the node is
// not known. Only where it is admitted room is kept.
func TestAnswersAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		pod    admit.PodAttributes
		change func(*ward)
		admit  bool
		text   string // of the message or the error
		err    bool
	}{
		"there is room":    {pod: ordinary("x"), change: func(w *ward) { w.most = 3 }, admit: true},
		"not critical":     {pod: ordinary("x"), text: "Node didn't have enough resource: pods"},
		"a kubelet":        {pod: critical("x"), change: func(w *ward) { w.kubelet = true }, text: "preemption: a kubelet is on this node"},
		"nobody is pinned": {pod: critical("x"), change: func(w *ward) { w.refuse = errors.New("gone") }, text: "preemption: gone"},
		"unknown":          {pod: critical("x"), change: func(w *ward) { w.unknown = ErrUnknown }, text: "not known", err: true},
		"malformed":        {text: "must not be negative", pod: negative()},
	} {
		w := newWard(1, "a")
		if test.change != nil {
			test.change(w)
		}
		got := <-w.ask(t.Context(), test.pod)
		text := got.result.Message
		if got.err != nil {
			text = got.err.Error()
		}
		if got.result.Admit != test.admit || (got.err != nil) != test.err || !strings.Contains(text, test.text) || len(w.stopped) > 0 ||
			(len(w.kept()) == 1) != test.admit || len(w.making) > 0 || (w.failed > 0) != (w.refuse != nil) {
			t.Errorf("%s: %+v, stopped %v, kept for %v", name, got, w.stopped, w.kept())
		}
	}
}

// negative is a pod that no API server would have stored.
func negative() admit.PodAttributes {
	p := critical("x")
	p.Pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("-1")}}}}
	return p
}

// Too many at once are told so.
func TestTooManyPodsAtOnce(t *testing.T) {
	var uids []string
	for i := range maxMaking + 1 {
		uids = append(uids, fmt.Sprintf("p%02d", i))
	}
	w := newWard(int64(len(uids)), uids...)
	for i := range maxMaking {
		w.ask(t.Context(), critical(fmt.Sprint("x", i)))
	}
	if got := <-w.ask(t.Context(), critical("y")); !errors.Is(got.err, ErrBusy) || len(w.stopped) != maxMaking {
		t.Errorf("%+v, stopped %d", got, len(w.stopped))
	}
	w.Close()
}

// A client that does not wait any more gets its error, and what was begun goes on; so does one of an agent that is being stopped.
func TestWhoDoesNotWaitAnyMore(t *testing.T) {
	w := newWard(2, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	gone := w.ask(ctx, critical("x"))
	cancel()
	if got := <-gone; !errors.Is(got.err, context.Canceled) {
		t.Errorf("%+v", got)
	}
	w.dead("b")
	if w.Advance(w.now); !slices.Equal(w.kept(), []string{"x"}) || len(w.making) > 0 {
		t.Errorf("kept for %v", w.kept())
	}
	ended := w.ask(t.Context(), critical("y"))
	w.Close()
	if got := <-ended; !errors.Is(got.err, ErrClosed) {
		t.Errorf("%+v", got)
	}
	for range maxAsks {
		w.Want(critical("z")) // and nobody takes it
	}
	if _, err := w.Preempt(t.Context(), critical("z")); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// While the node is not known nobody is let in; the answer comes when it is.
func TestAnOutcomeWaitsForTheNode(t *testing.T) {
	w := newWard(1, "a")
	a := w.ask(t.Context(), critical("x"))
	w.dead("a")
	w.unknown = ErrUnknown
	w.Advance(w.now)
	w.still(t, a)
	w.unknown = nil
	w.Advance(w.now)
	if got := <-a; !got.result.Admit {
		t.Errorf("%+v", got)
	}
}

// A caller that makes the pod anew for each attempt, with a new UID and the same name, costs no victim more, and what was kept for the
// attempt before is this one's, also in the gate. Another critical pod gets none of it.
func TestANewUIDForEachAttempt(t *testing.T) {
	w := newWard(6, "a", "b", "c", "d", "e", "f")
	attempt := func(i int) admit.PodAttributes {
		pod := critical(fmt.Sprint("x", i))
		pod.Pod.Name = "x"
		return pod
	}
	for i := range 6 {
		w.OnAsk(t.Context(), w.now, ask{pod: attempt(i)})
		for _, uid := range w.dying() {
			w.dead(uid)
		}
		w.now = w.now.Add(2 * time.Second)
		w.Advance(w.now)
	}
	if len(w.stopped) != 1 || !slices.Equal(w.kept(), []string{"x5"}) {
		t.Errorf("stopped %v, kept for %v", w.stopped, w.kept())
	}
	state, _ := w.state(w.now)
	if r := admit.Admit(attempt(6), state); !r.Admit {
		t.Errorf("the next attempt: %+v", r)
	}
	low := attempt(6)
	low.Pod.Spec.Priority = nil
	for what, other := range map[string]admit.PodAttributes{"another": critical("y"), "one of that name that is not critical": low} {
		if r := admit.Admit(other, state); r.Admit {
			t.Errorf("%s gets the room that is kept", what)
		}
	}
}

// An attempt that comes while the victims of the one before die takes its place; who waited for that one is told.
func TestANewUIDWhileRoomIsMade(t *testing.T) {
	w := newWard(1, "a")
	before := w.ask(t.Context(), critical("x0"))
	again := critical("x1")
	again.Pod.Name = "x0"
	after := w.ask(t.Context(), again)
	if got := <-before; !errors.Is(got.err, errAnother) {
		t.Errorf("%+v", got)
	}
	w.still(t, after)
	w.dead("a")
	w.Advance(w.now)
	if got := <-after; !got.result.Admit || len(w.stopped) != 1 || !slices.Equal(w.kept(), []string{"x1"}) {
		t.Errorf("%+v, stopped %v, kept for %v", got, w.stopped, w.kept())
	}
}

// What is kept counts before who asked is answered: the runtime may let in another pod at the next moment.
func TestWhatIsKeptCountsBeforeTheAnswer(t *testing.T) {
	w := newWard(1)
	if got := <-w.ask(t.Context(), critical("x")); !got.result.Admit || !slices.Equal(w.published, []string{"x"}) {
		t.Errorf("%+v, published %v", got, w.published)
	}
}

// A loop that was held up stops nobody for pods that the runtime was refused long ago, nor for clients that have gone.
func TestAStaleAskStopsNobody(t *testing.T) {
	for what, c := range map[string]struct {
		a    ask
		want int
	}{
		"long ago": {ask{pod: critical("x"), at: time.Unix(1000, 0).Add(-askFor - 1)}, 0},
		"just now": {ask{pod: critical("x"), at: time.Unix(1000, 0).Add(-askFor)}, 1},
		"has gone": {ask{pod: critical("x"), reply: make(chan answer, 1), gone: closed()}, 0},
		"is there": {ask{pod: critical("x"), reply: make(chan answer, 1), gone: make(chan struct{})}, 1},
		"for ever": {ask{pod: critical("x"), reply: make(chan answer, 1)}, 1},
	} {
		w := newWard(1, "a")
		if w.OnAsk(t.Context(), w.now, c.a); len(w.stopped) != c.want {
			t.Errorf("%s: stopped %v", what, w.stopped)
		}
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Whatever becomes of the victims, and whoever asks: a pod is admitted only when there is room for it beside all that lives and all that was
// promised, each who asks is answered once, nobody goes who may not, and nobody is stopped twice.
func TestNoRoomIsGivenTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWard(int64(rapid.IntRange(1, 8).Draw(rt, "most")))
		for i := range rapid.IntRange(0, 8).Draw(rt, "pods") {
			h := admit.Held{UID: types.UID(fmt.Sprint("p", i)), Name: fmt.Sprint("p", i), QOS: stats.BestEffort}
			h.Spared = rapid.IntRange(0, 4).Draw(rt, "spared") == 0
			h.Priority = stats.Some(rapid.SampledFrom([]int32{0, systemCriticalPriority}).Draw(rt, "priority"))
			w.pods = append(w.pods, h)
		}
		waiting := map[string]chan answer{}
		answered := func() {
			for uid, c := range waiting {
				select {
				case got := <-c:
					delete(waiting, uid)
					if n := w.taken(uid); got.result.Admit && n+1 > w.most {
						rt.Fatalf("%s is admitted beside %d of %d", uid, n, w.most)
					}
				default:
				}
			}
		}
		for i := range rapid.IntRange(1, 20).Draw(rt, "turns") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(rt, "s")) * time.Second)
			switch live := w.dying(); {
			case len(live) > 0 && rapid.Bool().Draw(rt, "an end"):
				uid := rapid.SampledFrom(live).Draw(rt, "of")
				if rapid.IntRange(0, 2).Draw(rt, "undying") == 0 {
					w.m.Refused(w.now, w.lives[uid])
				} else {
					w.dead(uid)
				}
			default:
				uid := fmt.Sprint("x", i)
				waiting[uid] = make(chan answer, 1)
				w.OnAsk(context.Background(), w.now, ask{pod: priority(uid, systemCriticalPriority+rapid.Int32Range(-1, 5).Draw(rt, "rank")), reply: waiting[uid]})
				answered()
			}
			w.Advance(w.now)
			answered()
		}
		for _, uid := range w.dying() {
			w.dead(uid)
		}
		w.Advance(w.now)
		answered()
		if len(waiting)+len(w.making) > 0 {
			rt.Fatalf("not answered: %v", waiting)
		}
		slices.Sort(w.stopped)
		if len(slices.Compact(slices.Clone(w.stopped))) != len(w.stopped) {
			rt.Fatalf("stopped twice: %v", w.stopped)
		}
		for _, h := range w.pods {
			if h.Spared && slices.Contains(w.stopped, string(h.UID)) {
				rt.Fatalf("%s was stopped", h.UID)
			}
		}
	})
}

// taken is how many pods live or were promised room, but for one.
func (w *ward) taken(but string) (n int64) {
	for _, h := range w.pods {
		l := w.lives[string(h.UID)]
		if l == nil {
			n++
		} else if back, _ := l.Room(w.now); !back {
			n++
		}
	}
	for _, uid := range w.kept() {
		if uid != but && !slices.ContainsFunc(w.making, func(m *making) bool { return string(m.held.UID) == uid }) {
			n++
		}
	}
	return n
}

// dying are victims that may still end one way or the other.
func (w *ward) dying() (out []string) {
	for uid, l := range w.lives {
		if _, over := l.Room(w.now); !over {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}
