package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"jettison/admit"
	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read"
)

// Resources are reserved for a pod until it runs; from then on the pod holds them. During a
// preemption the reservation stays although the pod's sandbox exists.
func TestReservationLastsUntilThePodRuns(t *testing.T) {
	w := newWard(1, "a")
	runs := func(ready bool) read.Index {
		return read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: "x", Namespace: "kube-system", Name: "x", Ready: ready}}})
	}
	a := w.ask(t.Context(), critical("x"))
	w.OnPods(runs(true))
	if !slices.Equal(w.reserved(), []string{"x"}) {
		t.Errorf("reserved while the victim lives for %v, want [x]", w.reserved())
	}
	w.markDead("a")
	w.Advance(w.now)
	if got := <-a; !got.result.Admit {
		t.Fatalf("answer after the victim died = %+v, want admitted", got)
	}
	w.Advance(w.now)
	w.OnPods(nil)
	if w.OnPods(runs(false)); w.Advance(w.now) || !slices.Equal(w.reserved(), []string{"x"}) {
		t.Errorf("reserved before the pod runs for %v, want [x]", w.reserved())
	}
	if w.OnPods(runs(true)); !w.Advance(w.now) || len(w.reserved()) > 0 {
		t.Errorf("reserved after the pod runs for %v, want none", w.reserved())
	}
}

// One pod's victims free no resources for another pod.
func TestPreemptionsDoNotShareVictims(t *testing.T) {
	w := newWard(2, "a", "b")
	first, second := w.ask(t.Context(), critical("x")), w.ask(t.Context(), critical("y"))
	if !slices.Equal(w.stopped, []string{"b", "a"}) || len(w.reserved()) != 2 {
		t.Fatalf("stopped pods %v, reserved for %v, want [b a] and two", w.stopped, w.reserved())
	}
	third := w.ask(t.Context(), critical("z"))
	if got := <-third; got.result.Admit || got.err != nil || !strings.Contains(got.result.Message, "no set of running pods") {
		t.Errorf("answer without remaining victims = %+v, want a rejection", got)
	}
	w.markDead("b")
	w.Advance(w.now)
	if got := <-first; !got.result.Admit {
		t.Errorf("first answer = %+v, want admitted", got)
	}
	w.checkPending(t, second)
	w.markDead("a")
	w.Advance(w.now)
	if got := <-second; !got.result.Admit {
		t.Errorf("second answer = %+v, want admitted", got)
	}
}

// A reservation is published before the caller is answered: the runtime may start another pod
// immediately afterwards.
func TestReservationIsPublishedBeforeTheAnswer(t *testing.T) {
	w := newWard(1)
	if got := <-w.ask(t.Context(), critical("x")); !got.result.Admit || !slices.Equal(w.published, []string{"x"}) {
		t.Errorf("answer %+v, published reservations %v, want admitted and [x]", got, w.published)
	}
}

// randomWard is a ward with random events: requests, starts and ends of pods.
type randomWard struct {
	*ward
	t         *rapid.T
	requested map[string]admit.PodAttributes // by UID; they may start
	waiting   map[string]chan answer
	gated     map[string]bool  // pods that only the gate requested resources for
	granted   map[string]grant // pods with a reservation after a positive answer
	highest   int32            // highest priority that got resources in this turn
}

type grant struct {
	priority int32
	until    time.Time
}

func newRandomWard(t *rapid.T) *randomWard {
	w := newWard(int64(rapid.IntRange(1, 8).Draw(t, "most")))
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		h := admit.Held{UID: types.UID(fmt.Sprint("p", i)), Name: fmt.Sprint("p", i), QOS: stats.BestEffort}
		h.Protected = rapid.IntRange(0, 4).Draw(t, "spared") == 0
		h.Priority = stats.Some(rapid.SampledFrom([]int32{0, systemCriticalPriority}).Draw(t, "priority"))
		w.pods = append(w.pods, h)
	}
	return &randomWard{ward: w, t: t, requested: map[string]admit.PodAttributes{}, waiting: map[string]chan answer{}, gated: map[string]bool{}, granted: map[string]grant{}}
}

// checkFits checks that the node has resources for a pod that was admitted.
func (l *randomWard) checkFits(uid string) {
	if n := l.occupied(uid); n+1 > l.maxPods {
		l.t.Fatalf("%s was admitted while %d of %d pods run or have a reservation", uid, n, l.maxPods)
	}
	l.highest = max(l.highest, *l.requested[uid].Pod.Spec.Priority)
}

func (l *randomWard) collectAnswers() {
	for uid, c := range l.waiting {
		select {
		case got := <-c:
			_, out := l.requested[uid] // otherwise it started meanwhile, and has its resources
			if delete(l.waiting, uid); got.result.Admit && out {
				l.checkFits(uid)
				l.granted[uid] = grant{*l.requested[uid].Pod.Spec.Priority, l.now.Add(admit.ReservationPeriod)}
			}
		default:
		}
	}
	for uid := range l.gated { // without a caller, the reservation is the answer
		pending := slices.ContainsFunc(l.inProgress, func(m *preemption) bool { return string(m.held.UID) == uid })
		if pending {
			continue
		}
		if delete(l.gated, uid); slices.Contains(l.reserved(), uid) {
			l.checkFits(uid)
		}
	}
}

// checkReservations checks that reservations end only by expiry or for a more critical pod.
func (l *randomWard) checkReservations() {
	for uid, g := range l.granted {
		switch {
		case !l.now.Before(g.until):
			delete(l.granted, uid)
		case slices.Contains(l.reserved(), uid):
		case l.highest <= g.priority:
			l.t.Fatalf("the reservation of %s with priority %d was lost to priority %d", uid, g.priority, l.highest)
		default:
			delete(l.granted, uid)
		}
	}
	l.highest = 0
}

func (l *randomWard) end(uid string) {
	if rapid.IntRange(0, 2).Draw(l.t, "undying") == 0 {
		l.m.MarkUndying(l.now, l.lives[uid])
	} else {
		l.markDead(uid)
	}
}

func (l *randomWard) request(uid string) {
	pod := priority(uid, systemCriticalPriority+rapid.Int32Range(-1, 5).Draw(l.t, "rank"))
	if n := rapid.IntRange(0, 3).Draw(l.t, "controller"); n > 0 { // of which the others are replicas, or renamed attempts
		pod.Pod.OwnerReferences = ownedBy(fmt.Sprint("ds", n), uid).Pod.OwnerReferences
	}
	l.requested[uid] = pod
	if rapid.IntRange(0, 2).Draw(l.t, "by the gate") == 0 {
		l.gated[uid] = true
		l.OnRequest(context.Background(), l.now, preemptRequest{pod: pod})
		l.collectAnswers()
		return
	}
	l.waiting[uid] = make(chan answer, 1)
	l.OnRequest(context.Background(), l.now, preemptRequest{pod: l.requested[uid], reply: l.waiting[uid]})
	l.collectAnswers()
}

// start lets the runtime start a pod that requested preemption before, if the gate admits it.
func (l *randomWard) start(uid string) {
	state, _ := l.state(l.now)
	pod := l.requested[uid]
	if !admit.Admit(pod, state).Admit {
		return
	}
	l.pods = append(l.pods, admit.HeldBy(pod))
	if l.OnAdmitted(pod); len(l.Requests()) > 0 {
		l.OnRequest(context.Background(), l.now, <-l.Requests())
	}
	l.OnPods(read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: uid, UID: uid, Namespace: "kube-system", Name: uid, Ready: true}}}))
	l.checkFits(uid)
	delete(l.granted, uid)
	delete(l.gated, uid)
	delete(l.requested, uid)
}

// For random ends of victims, requests and starts of pods: a pod is admitted only if it fits in
// addition to running pods and reservations. A reservation lasts except against a more critical
// pod. Each request is answered once. No protected pod is stopped, and no pod twice.
func TestNoRoomIsGivenTwice(t *testing.T) {
	outranked := 0
	rapid.Check(t, func(rt *rapid.T) {
		l := newRandomWard(rt)
		for i := range rapid.IntRange(1, 20).Draw(rt, "turns") {
			l.now = l.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(rt, "s")) * time.Second)
			before := len(l.granted)
			switch live, came := l.dying(), slices.Sorted(maps.Keys(l.requested)); {
			case len(live) > 0 && rapid.Bool().Draw(rt, "an end"):
				l.end(rapid.SampledFrom(live).Draw(rt, "of"))
			case len(came) > 0 && rapid.IntRange(0, 2).Draw(rt, "one comes") == 0:
				l.start(rapid.SampledFrom(came).Draw(rt, "who"))
			default:
				l.request(fmt.Sprint("x", i))
			}
			l.Advance(l.now)
			l.collectAnswers()
			if l.checkReservations(); len(l.granted) < before {
				outranked++
			}
		}
		for _, uid := range l.dying() {
			l.markDead(uid)
		}
		l.Advance(l.now)
		l.collectAnswers()
		if len(l.waiting)+len(l.inProgress) > 0 {
			rt.Fatalf("requests without an answer: %v", l.waiting)
		}
		slices.Sort(l.stopped)
		if len(slices.Compact(slices.Clone(l.stopped))) != len(l.stopped) {
			rt.Fatalf("pods stopped more than once: %v", l.stopped)
		}
		for _, h := range l.pods {
			if h.Protected && slices.Contains(l.stopped, string(h.UID)) {
				rt.Fatalf("protected pod %s was stopped", h.UID)
			}
		}
	})
	t.Log("turns that lost a reservation:", outranked)
}
