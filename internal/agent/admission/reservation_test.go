package admission

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/admit"
)

// An admitted attempt with a new UID uses the reservation of the earlier attempt: it counts once,
// and no pod is stopped for it.
func TestNewUIDUsesReservation(t *testing.T) {
	w := newWard(3, "a", "b", "c")
	first := w.ask(t.Context(), critical("x"))
	for _, uid := range w.dying() {
		w.markDead(uid)
	}
	w.Advance(w.now)
	if got := <-first; !got.result.Admit {
		t.Fatalf("answer for the first attempt = %+v, want admitted", got)
	}
	again := critical("x again")
	again.Pod.Name = "x"
	state, _ := w.state(w.now)
	if r := admit.Admit(again, state); !r.Admit {
		t.Fatalf("decision on the second attempt = %+v, want admitted", r)
	}
	w.pods = append(w.pods, admit.HeldBy(again)) // it runs
	w.OnAdmitted(again)
	if len(w.Requests()) > 0 {
		w.OnRequest(t.Context(), w.now, <-w.Requests())
	}
	w.maxPods++ // the node fits one more pod
	w.OnRequest(t.Context(), w.now, preemptRequest{pod: critical("y")})
	if got := w.stopped; len(got) != 1 {
		t.Errorf("stopped %v, want one: the other pod fits", got)
	}
	if kept := w.reserved(); !slices.Equal(kept, []string{"x again", "y"}) {
		t.Errorf("reserved for %v, want [x again y]", kept)
	}
}

// A reservation is dropped for a more critical pod only if both do not fit after the victims in
// progress are dead.
func TestResourcesInProgressDropNoReservation(t *testing.T) {
	w := newWard(1, "v")
	made := w.ask(t.Context(), priority("m", systemCriticalPriority+1)) // preempts v
	w.checkPending(t, made)
	w.maxPods = 3 // two others have ended
	for i, uid := range []string{"l", "x"} {
		if got := <-w.ask(t.Context(), priority(uid, systemCriticalPriority+int32(5*i))); !got.result.Admit {
			t.Fatalf("answer for %s = %+v, want admitted", uid, got)
		}
	}
	w.markDead("v")
	w.Advance(w.now)
	if got := <-made; !got.result.Admit || !slices.Equal(w.reserved(), []string{"l", "m", "x"}) {
		t.Errorf("answer %+v, reserved for %v, want admitted and [l m x]", got, w.reserved())
	}
}

// Resources freed a moment ago are used, even if another preemption ends in the same turn.
func TestPreemptionsEndInTheSameTurn(t *testing.T) {
	w := newWard(2, "v", "w")
	one := w.ask(t.Context(), priority("m", systemCriticalPriority+5))
	two := w.ask(t.Context(), priority("n", systemCriticalPriority+5))
	w.maxPods = 5
	if got := <-w.ask(t.Context(), critical("l")); !got.result.Admit {
		t.Fatalf("answer for the less critical pod = %+v, want admitted", got)
	}
	w.maxPods = 2 // others run
	for _, uid := range w.dying() {
		w.markDead(uid)
	}
	w.Advance(w.now)
	for _, a := range []clientAnswer{one, two} {
		if got := <-a; !got.result.Admit {
			t.Errorf("answer = %+v, want admitted", got)
		}
	}
	if kept := w.reserved(); !slices.Equal(kept, []string{"m", "n"}) {
		t.Errorf("reserved for %v, want [m n]", kept)
	}
}

// Two preemptions are in progress. The pod whose victim ends first starts immediately: the other
// reservation and the victim that still holds its resources count once. A third pod gets neither.
func TestPendingReservationsDoNotDelayOthers(t *testing.T) {
	w := newWard(2, "a", "b")
	first, second := w.ask(t.Context(), critical("x")), w.ask(t.Context(), critical("y"))
	w.markDead(w.stopped[0])
	w.Advance(w.now)
	if got := <-first; !got.result.Admit {
		t.Fatalf("answer after the first victim died = %+v, want admitted", got)
	}
	w.checkPending(t, second)
	larger := critical("x")
	larger.Pod.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}}}
	state, _ := w.state(w.now)
	for what, c := range map[string]struct {
		pod  admit.PodAttributes
		want bool
	}{
		"the pod with the free reservation":   {critical("x"), true},
		"the same pod, with a larger request": {larger, false},
		"the pod with the pending one":        {critical("y"), false},
		"another critical pod":                {critical("z"), false},
	} {
		if got := admit.Admit(c.pod, state); got.Admit != c.want {
			t.Errorf("%s: decision = %+v, want admitted: %v", what, got, c.want)
		}
	}
}
