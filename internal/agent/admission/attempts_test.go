package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"jettison/admit"
)

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

// Too many at once are told so.
func TestTooManyPodsAtOnce(t *testing.T) {
	var uids []string
	for i := range maxPreemptions + 1 {
		uids = append(uids, fmt.Sprintf("p%02d", i))
	}
	w := newWard(int64(len(uids)), uids...)
	for i := range maxPreemptions {
		w.ask(t.Context(), critical(fmt.Sprint("x", i)))
	}
	if got := <-w.ask(t.Context(), critical("y")); !errors.Is(got.err, ErrBusy) || len(w.stopped) != maxPreemptions {
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
	if w.Advance(w.now); !slices.Equal(w.kept(), []string{"x"}) || len(w.inProgress) > 0 {
		t.Errorf("kept for %v", w.kept())
	}
	ended := w.ask(t.Context(), critical("y"))
	w.Close()
	if got := <-ended; !errors.Is(got.err, ErrClosed) {
		t.Errorf("%+v", got)
	}
	for range maxQueued {
		w.Want(critical("z")) // and nobody takes it
	}
	if _, err := w.Preempt(t.Context(), critical("z")); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
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
		w.OnRequest(t.Context(), w.now, preemptRequest{pod: attempt(i)})
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
	if got := <-before; !errors.Is(got.err, errSuperseded) {
		t.Errorf("%+v", got)
	}
	w.still(t, after)
	w.dead("a")
	w.Advance(w.now)
	if got := <-after; !got.result.Admit || len(w.stopped) != 1 || !slices.Equal(w.kept(), []string{"x1"}) {
		t.Errorf("%+v, stopped %v, kept for %v", got, w.stopped, w.kept())
	}
}

// A loop that was held up stops nobody for pods that the runtime was refused long ago, nor for clients that have gone.
func TestAStaleAskStopsNobody(t *testing.T) {
	for what, c := range map[string]struct {
		a    preemptRequest
		want int
	}{
		"long ago": {preemptRequest{pod: critical("x"), at: time.Unix(1000, 0).Add(-requestLifetime - 1)}, 0},
		"just now": {preemptRequest{pod: critical("x"), at: time.Unix(1000, 0).Add(-requestLifetime)}, 1},
		"has gone": {preemptRequest{pod: critical("x"), reply: make(chan answer, 1), gone: closed()}, 0},
		"is there": {preemptRequest{pod: critical("x"), reply: make(chan answer, 1), gone: make(chan struct{})}, 1},
		"for ever": {preemptRequest{pod: critical("x"), reply: make(chan answer, 1)}, 1},
	} {
		w := newWard(1, "a")
		if w.OnRequest(t.Context(), w.now, c.a); len(w.stopped) != c.want {
			t.Errorf("%s: stopped %v", what, w.stopped)
		}
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
