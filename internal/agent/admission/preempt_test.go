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

// The fewest pods are stopped, all at the same time. The answer follows when all are dead; the
// reservation lasts from the first kill until admit.ReservationPeriod after the last.
func TestRoomIsMadeAndKept(t *testing.T) {
	w := newWard(3, "a", "b", "c", "d") // one too many already
	a := w.ask(t.Context(), critical("x"))
	if !slices.Equal(w.stopped, []string{"d", "c"}) || !slices.Equal(w.reserved(), []string{"x"}) {
		t.Fatalf("stopped %v, reserved for %v, want [d c] and [x]", w.stopped, w.reserved())
	}
	if !strings.Contains(w.reason, "preempted for pod kube-system/x: Node didn't have enough resource: pods") {
		t.Errorf("reason of the preemption = %q", w.reason)
	}
	x, began := stats.PodReference{UID: "x", Namespace: "kube-system", Name: "x"}, w.now
	want := api.GateState{Preempting: []api.PreemptionState{{
		Pod: x, Began: began, Message: "Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 3",
		Victims: []stats.PodReference{{UID: "d", Namespace: "default", Name: "d"}, {UID: "c", Namespace: "default", Name: "c"}},
	}}}
	w.checkState(t, want)
	if !w.Advance(w.now) || w.Advance(w.now) {
		t.Error("Advance must report a change exactly once")
	}
	w.now = w.now.Add(time.Minute)
	w.Advance(w.now)
	w.markDead("d")
	if w.Advance(w.now); !slices.Equal(w.reserved(), []string{"x"}) {
		t.Errorf("reserved during a long grace period for %v, want [x]", w.reserved())
	}
	w.checkPending(t, a)
	w.markDead("c")
	w.now = w.now.Add(time.Second)
	w.Advance(w.now)
	if got := <-a; got.err != nil || !got.result.Admit {
		t.Fatalf("answer after both victims died = %+v, want admitted", got)
	}
	w.now = w.now.Add(admit.ReservationPeriod - 1)
	if w.Advance(w.now) || len(w.reserved()) != 1 {
		t.Errorf("reserved just before admit.ReservationPeriod for %v, want [x]", w.reserved())
	}
	w.checkState(t, api.GateState{Reserved: []api.ReservationState{{Pod: x, Until: w.now.Add(1)}}, Preempted: 1})
	w.now = w.now.Add(1)
	if !w.Advance(w.now) || len(w.reserved()) != 0 {
		t.Errorf("reserved after admit.ReservationPeriod for %v, want none", w.reserved())
	}
	w.checkState(t, api.GateState{Preempted: 1})
}

// J11, unlike the kubelet: a failed kill rejects the pod with its reason. No resources are
// reserved; the gate repeats the reason for a while.
func TestAFailedKillIsARejection(t *testing.T) {
	w := newWard(2, "a", "b", "c")
	a := w.ask(t.Context(), critical("x"))
	w.markDead("c")
	w.m.MarkUndying(w.now, w.lives["b"])
	w.Advance(w.now)
	got := <-a
	if got.err != nil || got.result.Admit || got.result.Reason != admit.ReasonUnexpected ||
		!strings.HasSuffix(got.result.Message, "preemption: pod default/b was not killed: the kernel holds it") {
		t.Errorf("answer after a failed kill = %+v", got)
	}
	if len(w.reserved()) > 0 {
		t.Errorf("reserved after a failed kill for %v, want none", w.reserved())
	}
	w.checkState(t, api.GateState{PreemptFailed: 1})
	w.notes.set(w.now, "other", "y")
	if text := w.notes.get(w.now.Add(noteLifetime-1), "x"); !strings.Contains(text, "the kernel holds it") || w.notes.get(w.now.Add(noteLifetime), "x") != "" {
		t.Errorf("note on the failed kill = %q, want its reason until noteLifetime", text)
	}
}

// The runtime waits neither for kills nor for a loop that hangs. Only critical pods are queued.
func TestTheRuntimeDoesNotWait(t *testing.T) {
	w := newWard(1, "a")
	if note := w.RequestPreemption(ordinary("o")); note != "" || len(w.requests) > 0 {
		t.Errorf("ordinary pod: note %q, %d queued requests, want none", note, len(w.requests))
	}
	if note := w.RequestPreemption(critical("")); note != "" || len(w.requests) > 0 {
		t.Errorf("pod without a UID: note %q, %d queued requests, want none", note, len(w.requests))
	}
	for i := range 2 * maxQueued {
		if note := w.RequestPreemption(critical("x")); note != "; preemption may free resources for it: retry" || len(w.requests) != min(i+1, maxQueued) {
			t.Fatalf("critical pod: note %q, %d queued requests, want %d", note, len(w.requests), min(i+1, maxQueued))
		}
	}
	for range maxQueued {
		w.OnRequest(t.Context(), w.now, <-w.Requests())
	}
	if len(w.stopped) != 1 || len(w.inProgress) != 1 || len(w.inProgress[0].waiting) > 0 {
		t.Errorf("stopped %v for one pod with %d waiting callers, want one and none", w.stopped, len(w.inProgress[0].waiting))
	}
	w.maxPods = 3
	w.OnRequest(t.Context(), w.now, preemptRequest{pod: critical("late")}) // it fits by now
	if !slices.Contains(w.reserved(), "late") {
		t.Errorf("reserved for %v, want also late", w.reserved())
	}
	w.promises.Drop("late")
	w.maxPods = 1
	w.m.MarkUndying(w.now, w.lives["a"])
	w.Advance(w.now)
	w.notes.set(time.Now(), "x", "because") // the runtime's clock
	if note := w.RequestPreemption(critical("x")); note != "; preemption failed: because" {
		t.Errorf("note after a failed preemption = %q", note)
	}
	w.o.Enabled = false
	if note := w.RequestPreemption(critical("y")); note != "" || len(w.requests) != 1 {
		t.Errorf("note with preemption switched off = %q, want none", note)
	}
}

// The number of notes is bounded.
func TestNotesAreBounded(t *testing.T) {
	var n notes
	now := time.Now()
	for i := range 3 * maxNotes {
		uid := types.UID(fmt.Sprint("x", i))
		if n.set(now, uid, "because"); len(n.byKey) > maxNotes || n.get(now, uid) != "because" {
			t.Fatalf("%d notes after %d pods, want at most %d", len(n.byKey), i, maxNotes)
		}
	}
}

// A dead victim is settled: a pod that came back under its UID and is being stopped again is not
// waited for.
func TestDeadVictimIsSettled(t *testing.T) {
	w := newWard(1, "a")
	a := w.ask(t.Context(), critical("x"))
	w.markDead("a")
	if _, err := w.stop(t.Context(), w.now, []string{"a"}, "it came back, and memory is short"); err != nil {
		t.Fatal(err)
	}
	w.Advance(w.now)
	if got := <-a; got.result.Admit || got.result.Reason != "OutOfpods" || len(w.inProgress) > 0 {
		t.Errorf("answer after the victim came back = %+v, want OutOfpods", got)
	}
}

// Resources that an eviction in progress will free are waited for, without further victims.
func TestEvictionInProgressIsAwaited(t *testing.T) {
	w := newWard(2, "a", "b")
	if _, err := w.stop(t.Context(), w.now, []string{"a"}, "memory is short"); err != nil {
		t.Fatal(err)
	}
	a := w.ask(t.Context(), critical("x"))
	w.Advance(w.now)
	w.checkPending(t, a)
	w.markDead("a")
	w.Advance(w.now)
	if got := <-a; !got.result.Admit || len(w.stopped) != 1 {
		t.Errorf("answer %+v, stopped %v, want admitted and only a", got, w.stopped)
	}
}

// A request without preemption is answered immediately: the pod fits, is not critical, a kubelet
// runs here, a victim cannot be pinned, or the node is unknown. Only an admitted pod gets a
// reservation.
func TestImmediateAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		pod    admit.PodAttributes
		change func(*ward)
		admit  bool
		text   string // of the message or the error
		err    bool
	}{
		"pod fits":          {pod: ordinary("x"), change: func(w *ward) { w.maxPods = 3 }, admit: true},
		"not critical":      {pod: ordinary("x"), text: "Node didn't have enough resource: pods"},
		"kubelet":           {pod: critical("x"), change: func(w *ward) { w.kubelet = true }, text: "preemption: the kubelet on this node"},
		"pinning fails":     {pod: critical("x"), change: func(w *ward) { w.pinErr = errors.New("gone") }, text: "preemption: gone"},
		"unknown node":      {pod: critical("x"), change: func(w *ward) { w.stateErr = ErrUnknown }, text: "node state unknown", err: true},
		"malformed request": {text: "must not be negative", pod: negative()},
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
			(len(w.reserved()) == 1) != test.admit || len(w.inProgress) > 0 || (w.failed > 0) != (w.pinErr != nil) {
			t.Errorf("%s: answer %+v, stopped %v, reserved for %v", name, got, w.stopped, w.reserved())
		}
	}
}

// negative returns a pod that no API server would have stored.
func negative() admit.PodAttributes {
	p := critical("x")
	p.Pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("-1")}}}}
	return p
}

// While the node is unknown no pod is admitted; the answer follows when it is known.
func TestAnswerWaitsForTheNode(t *testing.T) {
	w := newWard(1, "a")
	a := w.ask(t.Context(), critical("x"))
	w.markDead("a")
	w.stateErr = ErrUnknown
	w.Advance(w.now)
	w.checkPending(t, a)
	w.stateErr = nil
	w.Advance(w.now)
	if got := <-a; !got.result.Admit {
		t.Errorf("answer after the node became known = %+v, want admitted", got)
	}
}
