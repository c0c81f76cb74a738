package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
	"jettison/cri"
	"jettison/stats/read"
)

// A retried eviction of a victim replaces the abandoned one: what it frees counts.
func TestRetriedVictimCounts(t *testing.T) {
	w := newWard(2, "a", "b")
	if _, err := w.stop(t.Context(), w.now, []string{"a"}, "memory is short"); err != nil {
		t.Fatal(err)
	}
	first, second := w.ask(t.Context(), critical("x")), w.ask(t.Context(), critical("y")) // x awaits a, y preempts b
	if !slices.Equal(w.stopped, []string{"a", "b"}) {
		t.Fatalf("stopped pods = %v, want a and b", w.stopped)
	}
	for _, uid := range []string{"a", "b"} { // as a hard threshold does when the kernel refuses to shorten the grace period
		if _, err := w.stop(t.Context(), w.now, []string{uid}, "memory is short"); err != nil {
			t.Fatal(err)
		}
	}
	w.Advance(w.now)
	w.checkPending(t, first)
	w.checkPending(t, second)
	w.markDead("a")
	w.markDead("b")
	w.Advance(w.now)
	for _, a := range []clientAnswer{first, second} {
		if got := <-a; !got.result.Admit {
			t.Errorf("answer after both victims died = %+v, want admitted", got)
		}
	}
}

// A second request for the same pod gets the same answer and costs no further victim.
func TestSamePodPreemptsOnce(t *testing.T) {
	w := newWard(1, "a")
	first, second := w.ask(t.Context(), critical("x")), w.ask(t.Context(), critical("x"))
	w.markDead("a")
	w.Advance(w.now)
	for _, a := range []clientAnswer{first, second} {
		if got := <-a; !got.result.Admit || got.err != nil {
			t.Errorf("answer = %+v, want admitted without error", got)
		}
	}
	if len(w.stopped) != 1 {
		t.Errorf("stopped pods = %v, want one", w.stopped)
	}
}

// Beyond maxPreemptions a request fails with ErrBusy.
func TestTooManyPreemptions(t *testing.T) {
	var uids []string
	for i := range maxPreemptions + 1 {
		uids = append(uids, fmt.Sprintf("p%02d", i))
	}
	w := newWard(int64(len(uids)), uids...)
	for i := range maxPreemptions {
		w.ask(t.Context(), critical(fmt.Sprint("x", i)))
	}
	if got := <-w.ask(t.Context(), critical("y")); !errors.Is(got.err, ErrBusy) || len(w.stopped) != maxPreemptions {
		t.Errorf("answer = %+v with %d stopped pods, want ErrBusy and %d", got, len(w.stopped), maxPreemptions)
	}
	w.Close()
}

// A client that stops waiting gets its context's error, and a client of a stopping agent ErrClosed.
// Preemptions in progress continue.
func TestCallerStopsWaiting(t *testing.T) {
	w := newWard(2, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	gone := w.ask(ctx, critical("x"))
	cancel()
	if got := <-gone; !errors.Is(got.err, context.Canceled) {
		t.Errorf("answer after cancellation = %+v, want context.Canceled", got)
	}
	w.markDead("b")
	if w.Advance(w.now); !slices.Equal(w.reserved(), []string{"x"}) || len(w.inProgress) > 0 {
		t.Errorf("reserved for %v, want [x]; %d preemptions in progress, want 0", w.reserved(), len(w.inProgress))
	}
	ended := w.ask(t.Context(), critical("y"))
	w.Close()
	if got := <-ended; !errors.Is(got.err, ErrClosed) {
		t.Errorf("answer after Close = %+v, want ErrClosed", got)
	}
	for range maxQueued {
		w.RequestPreemption(critical("z")) // no loop receives it
	}
	if _, err := w.Preempt(t.Context(), critical("z")); !errors.Is(err, ErrClosed) {
		t.Errorf("Preempt after Close: error %v, want ErrClosed", err)
	}
}

// A caller that creates the pod again for each attempt, with a new UID and the same name, costs one
// victim. The reservation passes to the newest attempt, also in the gate; other critical pods get
// none of it.
func TestNewUIDForEachAttempt(t *testing.T) {
	w := newWard(6, "a", "b", "c", "d", "e", "f")
	attempt := func(i int) admit.PodAttributes {
		pod := critical(fmt.Sprint("x", i))
		pod.Pod.Name = "x"
		return pod
	}
	for i := range 6 {
		w.OnRequest(t.Context(), w.now, preemptRequest{pod: attempt(i)})
		for _, uid := range w.dying() {
			w.markDead(uid)
		}
		w.now = w.now.Add(2 * time.Second)
		w.Advance(w.now)
	}
	if len(w.stopped) != 1 || !slices.Equal(w.reserved(), []string{"x5"}) {
		t.Errorf("stopped %v, want one pod; reserved for %v, want [x5]", w.stopped, w.reserved())
	}
	state, _ := w.state(w.now)
	if r := admit.Admit(attempt(6), state); !r.Admit {
		t.Errorf("decision on the next attempt = %+v, want admitted", r)
	}
	low := attempt(6)
	low.Pod.Spec.Priority = nil
	for what, other := range map[string]admit.PodAttributes{"another pod": critical("y"), "a pod of that name that is not critical": low} {
		if r := admit.Admit(other, state); r.Admit {
			t.Errorf("%s gets the reserved resources", what)
		}
	}
}

// ownedBy returns a critical pod of a controller.
func ownedBy(controller, uid string) admit.PodAttributes {
	pod, yes := critical(uid), true
	pod.Pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: controller, UID: types.UID(controller), Controller: &yes}}
	return pod
}

// A DaemonSet's next pod has another name and UID. Its attempts cost one victim, before and after the victim's death.
func TestNewNameForEachAttempt(t *testing.T) {
	w := newWard(6, "a", "b", "c", "d", "e", "f")
	for i := range 6 {
		w.OnRequest(t.Context(), w.now, preemptRequest{pod: ownedBy("ds", fmt.Sprint("ds-a1b2", i))})
		if i == 3 {
			for _, uid := range w.dying() {
				w.markDead(uid)
			}
		}
		w.now = w.now.Add(4 * time.Second)
		w.Advance(w.now)
	}
	if len(w.stopped) != 1 || !slices.Equal(w.reserved(), []string{"ds-a1b25"}) {
		t.Fatalf("stopped %v, want one pod; reserved for %v, want [ds-a1b25]", w.stopped, w.reserved())
	}
	state, _ := w.state(w.now)
	if r := admit.Admit(ownedBy("ds", "next"), state); !r.Admit {
		t.Errorf("decision on the next attempt = %+v, want admitted", r)
	}
	elsewhere, untrusted := ownedBy("ds", "y"), ownedBy("ds", "y")
	elsewhere.Pod.Namespace = "default"
	untrusted.UntrustedPriority = true
	for what, other := range map[string]admit.PodAttributes{
		"a pod of another controller": ownedBy("other", "y"), "a pod of another namespace": elsewhere, "a pod of untrusted priority": untrusted,
	} {
		if r := admit.Admit(other, state); r.Admit {
			t.Errorf("%s gets the reserved resources", what)
		}
	}
	w.OnAdmitted(ownedBy("ds", "next"))
	w.OnRequest(t.Context(), w.now, <-w.Requests())
	if !slices.Equal(w.reserved(), []string{"next"}) {
		t.Errorf("reserved after the admission for %v, want [next]", w.reserved())
	}
}

// A replica that fits by itself leaves the preemption to a replica that is still requested. One that is
// not requested again was an earlier attempt, for which nothing may stay reserved.
func TestAdmittedReplicaLeavesThePreemption(t *testing.T) {
	for _, c := range []struct {
		requests int
		want     []string
	}{{1, []string{"r2"}}, {2, []string{"r1"}}} {
		w := newWard(2, "a", "b")
		for range c.requests {
			w.OnRequest(t.Context(), w.now, preemptRequest{pod: ownedBy("rs", "r1")})
		}
		w.pods = slices.DeleteFunc(w.pods, func(h admit.Held) bool { return string(h.UID) != w.stopped[0] })
		second := ownedBy("rs", "r2")
		w.pods = append(w.pods, admit.HeldBy(second))
		w.OnAdmitted(second)
		w.OnRequest(t.Context(), w.now, <-w.Requests())
		w.markDead(w.stopped[0])
		w.Advance(w.now)
		if !slices.Equal(w.reserved(), c.want) || len(w.stopped) != 1 {
			t.Errorf("after %d requests: reserved for %v, stopped %v, want %v and one pod", c.requests, w.reserved(), w.stopped, c.want)
		}
	}
}

// Two replicas that the gate rejects in turn are served one after the other, with two victims.
func TestReplicasAreServedInTurn(t *testing.T) {
	w := newWard(2, "a", "b")
	left := []string{"r1", "r2"}
	for range 8 {
		for _, uid := range left {
			w.OnRequest(t.Context(), w.now, preemptRequest{pod: ownedBy("rs", uid)})
		}
		for _, uid := range w.dying() {
			w.markDead(uid)
		}
		w.now = w.now.Add(2 * time.Second)
		w.Advance(w.now)
		for _, uid := range left {
			state, _ := w.state(w.now)
			if pod := ownedBy("rs", uid); admit.Admit(pod, state).Admit {
				w.pods = append(w.pods, admit.HeldBy(pod))
				w.OnAdmitted(pod)
				w.OnRequest(t.Context(), w.now, <-w.Requests())
				w.OnPods(read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: uid, UID: uid, Namespace: "kube-system", Name: uid, Ready: true}}}))
				left = slices.DeleteFunc(slices.Clone(left), func(s string) bool { return s == uid })
				break
			}
		}
	}
	if len(left) > 0 || len(w.stopped) != 2 {
		t.Errorf("replicas without resources %v, stopped %v, want none and two pods", left, w.stopped)
	}
}

// While a client waits for one replica, another replica neither ends its wait nor costs a victim. What a
// client was promised stays.
func TestReplicaKeepsThePreemptionOfItsClient(t *testing.T) {
	w := newWard(2, "a", "b")
	first := w.ask(t.Context(), ownedBy("rs", "r1"))
	if got := <-w.ask(t.Context(), ownedBy("rs", "r2")); !errors.Is(got.err, errSibling) {
		t.Errorf("answer to the second replica = %+v, want errSibling", got)
	}
	w.OnRequest(t.Context(), w.now, preemptRequest{pod: ownedBy("rs", "r3")})
	w.checkPending(t, first)
	w.markDead(w.stopped[0])
	w.Advance(w.now)
	if got := <-first; !got.result.Admit || len(w.stopped) != 1 {
		t.Errorf("answer to the first replica = %+v, stopped %v, want admitted and one pod", got, w.stopped)
	}
	second := w.ask(t.Context(), ownedBy("rs", "r2"))
	w.checkPending(t, second)
	if !slices.Equal(w.reserved(), []string{"r1", "r2"}) || len(w.stopped) != 2 {
		t.Errorf("reserved for %v, stopped %v, want [r1 r2] and two pods", w.reserved(), w.stopped)
	}
	w.markDead(w.stopped[1])
	w.Advance(w.now)
	if got := <-second; !got.result.Admit {
		t.Errorf("answer to the second replica = %+v, want admitted", got)
	}
}

// A new attempt during the preemption takes it over, and the caller of the earlier attempt gets
// errSuperseded.
func TestNewUIDDuringPreemption(t *testing.T) {
	w := newWard(1, "a")
	before := w.ask(t.Context(), critical("x0"))
	again := critical("x1")
	again.Pod.Name = "x0"
	after := w.ask(t.Context(), again)
	if got := <-before; !errors.Is(got.err, errSuperseded) {
		t.Errorf("answer to the earlier attempt = %+v, want errSuperseded", got)
	}
	w.checkPending(t, after)
	w.markDead("a")
	w.Advance(w.now)
	if got := <-after; !got.result.Admit || len(w.stopped) != 1 || !slices.Equal(w.reserved(), []string{"x1"}) {
		t.Errorf("answer to the new attempt = %+v, stopped %v, reserved for %v; want admitted, one pod, [x1]", got, w.stopped, w.reserved())
	}
}

// A delayed loop stops no pod for old requests of the gate, nor for clients that stopped waiting.
func TestStaleRequestStopsNoPod(t *testing.T) {
	for what, c := range map[string]struct {
		a    preemptRequest
		want int
	}{
		"expired request":     {preemptRequest{pod: critical("x"), at: time.Unix(1000, 0).Add(-requestLifetime - 1)}, 0},
		"fresh request":       {preemptRequest{pod: critical("x"), at: time.Unix(1000, 0).Add(-requestLifetime)}, 1},
		"client stopped":      {preemptRequest{pod: critical("x"), reply: make(chan answer, 1), gone: closed()}, 0},
		"client waits":        {preemptRequest{pod: critical("x"), reply: make(chan answer, 1), gone: make(chan struct{})}, 1},
		"client never leaves": {preemptRequest{pod: critical("x"), reply: make(chan answer, 1)}, 1},
	} {
		w := newWard(1, "a")
		if w.OnRequest(t.Context(), w.now, c.a); len(w.stopped) != c.want {
			t.Errorf("%s: stopped pods = %v, want %d", what, w.stopped, c.want)
		}
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
