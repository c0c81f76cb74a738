package admission

import (
	"slices"
	"testing"

	"jettison/admit"
)

// An attempt that the runtime is let run under a new UID takes the room that was kept for the one before: it is not kept a second time, and
// nobody goes for it.
func TestANewUIDThatIsLetInHasTheRoom(t *testing.T) {
	w := newWard(3, "a", "b", "c")
	first := w.ask(t.Context(), critical("x"))
	for _, uid := range w.dying() {
		w.dead(uid)
	}
	w.Advance(w.now)
	if got := <-first; !got.result.Admit {
		t.Fatalf("%+v", got)
	}
	again := critical("x again")
	again.Pod.Name = "x"
	state, _ := w.state(w.now)
	if r := admit.Admit(again, state); !r.Admit {
		t.Fatalf("%+v", r)
	}
	w.pods = append(w.pods, admit.HeldBy(again)) // it runs
	w.LetIn(again)
	if len(w.Requests()) > 0 {
		w.OnRequest(t.Context(), w.now, <-w.Requests())
	}
	w.most++ // there is room for one more
	w.OnRequest(t.Context(), w.now, preemptRequest{pod: critical("y")})
	if got := w.stopped; len(got) != 1 {
		t.Errorf("for another pod, which has room, is stopped: %v", got)
	}
	if kept := w.kept(); !slices.Equal(kept, []string{"x again", "y"}) {
		t.Errorf("kept for %v", kept)
	}
}

// A promise goes for a more critical pod only where there is no room beside it once those are dead that go for another.
func TestWhatWillBeFreeOutranksNobody(t *testing.T) {
	w := newWard(1, "v")
	made := w.ask(t.Context(), priority("m", systemCriticalPriority+1)) // v goes for it
	w.still(t, made)
	w.most = 3 // two others have ended
	for i, uid := range []string{"l", "x"} {
		if got := <-w.ask(t.Context(), priority(uid, systemCriticalPriority+int32(5*i))); !got.result.Admit {
			t.Fatalf("%s: %+v", uid, got)
		}
	}
	w.dead("v")
	w.Advance(w.now)
	if got := <-made; !got.result.Admit || !slices.Equal(w.kept(), []string{"l", "m", "x"}) {
		t.Errorf("%+v, kept for %v", got, w.kept())
	}
}

// Room that was made a moment ago is taken, also where more is made in the same pass.
func TestRoomMadeInTheSamePassOutranks(t *testing.T) {
	w := newWard(2, "v", "w")
	one := w.ask(t.Context(), priority("m", systemCriticalPriority+5))
	two := w.ask(t.Context(), priority("n", systemCriticalPriority+5))
	w.most = 5
	if got := <-w.ask(t.Context(), critical("l")); !got.result.Admit {
		t.Fatalf("%+v", got)
	}
	w.most = 2 // others run
	for _, uid := range w.dying() {
		w.dead(uid)
	}
	w.Advance(w.now)
	for _, a := range []asked{one, two} {
		if got := <-a; !got.result.Admit {
			t.Errorf("%+v", got)
		}
	}
	if kept := w.kept(); !slices.Equal(kept, []string{"m", "n"}) {
		t.Errorf("kept for %v", kept)
	}
}
