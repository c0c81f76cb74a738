package admission

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
	"jettison/api"
	"jettison/stats"
)

// The fewest go, at once; the answer comes when all of them are dead, and the room is kept from the first kill until 30 s after the last.
func TestRoomIsMadeAndKept(t *testing.T) {
	w := newWard(3, "a", "b", "c", "d") // one too many already
	a := w.ask(t.Context(), critical("x"))
	if !slices.Equal(w.stopped, []string{"d", "c"}) || !slices.Equal(w.kept(), []string{"x"}) {
		t.Fatalf("stopped %v, kept for %v", w.stopped, w.kept())
	}
	if !strings.Contains(w.reason, "preempted for pod kube-system/x: Node didn't have enough resource: pods") {
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
	if text := w.notes.get(w.now.Add(noteLifetime-1), "x"); !strings.Contains(text, "the kernel holds it") || w.notes.get(w.now.Add(noteLifetime), "x") != "" {
		t.Errorf("note %q", text)
	}
}

// The runtime is not kept waiting: neither by kills nor by a loop that does not answer. Only critical pods are told of.
func TestTheRuntimeDoesNotWait(t *testing.T) {
	w := newWard(1, "a")
	if note := w.Want(ordinary("o")); note != "" || len(w.requests) > 0 {
		t.Errorf("ordinary: %q, %d", note, len(w.requests))
	}
	if note := w.Want(critical("")); note != "" || len(w.requests) > 0 {
		t.Errorf("without a UID: %q, %d", note, len(w.requests))
	}
	for i := range 2 * maxQueued {
		if note := w.Want(critical("x")); note != "; preemption may free resources for it: retry" || len(w.requests) != min(i+1, maxQueued) {
			t.Fatalf("%q, %d", note, len(w.requests))
		}
	}
	for range maxQueued {
		w.OnRequest(t.Context(), w.now, <-w.Requests())
	}
	if len(w.stopped) != 1 || len(w.inProgress) != 1 || len(w.inProgress[0].waiting) > 0 {
		t.Errorf("stopped %v for one pod, %d waiting", w.stopped, len(w.inProgress[0].waiting))
	}
	w.most = 3
	w.OnRequest(t.Context(), w.now, preemptRequest{pod: critical("late")}) // there is room by now
	if !slices.Contains(w.kept(), "late") {
		t.Errorf("kept for %v", w.kept())
	}
	w.promises.Drop("late")
	w.most = 1
	w.m.Refused(w.now, w.lives["a"])
	w.Advance(w.now)
	w.notes.set(time.Now(), "x", "because") // the runtime's clock
	if note := w.Want(critical("x")); note != "; preemption failed: because" {
		t.Errorf("%q", note)
	}
	w.o.Wanted = false
	if note := w.Want(critical("y")); note != "" || len(w.requests) != 1 {
		t.Errorf("switched off: %q", note)
	}
}

// Notes are bounded, whoever asks.
func TestNotesAreBounded(t *testing.T) {
	var n notes
	now := time.Now()
	for i := range 3 * maxNotes {
		uid := types.UID(fmt.Sprint("x", i))
		if n.set(now, uid, "because"); len(n.by) > maxNotes || n.get(now, uid) != "because" {
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
	if got := <-a; got.result.Admit || got.result.Reason != "OutOfpods" || len(w.inProgress) > 0 {
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
		"a kubelet":        {pod: critical("x"), change: func(w *ward) { w.kubelet = true }, text: "preemption: the kubelet on this node"},
		"nobody is pinned": {pod: critical("x"), change: func(w *ward) { w.refuse = errors.New("gone") }, text: "preemption: gone"},
		"unknown":          {pod: critical("x"), change: func(w *ward) { w.unknown = ErrUnknown }, text: "node state unknown", err: true},
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
			(len(w.kept()) == 1) != test.admit || len(w.inProgress) > 0 || (w.failed > 0) != (w.refuse != nil) {
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
