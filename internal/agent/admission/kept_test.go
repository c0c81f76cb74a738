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

// What is kept counts before who asked is answered: the runtime may let in another pod at the next moment.
func TestWhatIsKeptCountsBeforeTheAnswer(t *testing.T) {
	w := newWard(1)
	if got := <-w.ask(t.Context(), critical("x")); !got.result.Admit || !slices.Equal(w.published, []string{"x"}) {
		t.Errorf("%+v, published %v", got, w.published)
	}
}

// lot is a ward on which anything happens: who asks, and who of those has come in.
type lot struct {
	*ward
	t       *rapid.T
	asked   map[string]admit.PodAttributes // by UID; they may come in
	waiting map[string]chan answer
	granted map[string]grant // who was told that there is room, which is kept
	highest int32            // priority of those who were given room in this turn
}

type grant struct {
	priority int32
	until    time.Time
}

func newLot(t *rapid.T) *lot {
	w := newWard(int64(rapid.IntRange(1, 8).Draw(t, "most")))
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		h := admit.Held{UID: types.UID(fmt.Sprint("p", i)), Name: fmt.Sprint("p", i), QOS: stats.BestEffort}
		h.Spared = rapid.IntRange(0, 4).Draw(t, "spared") == 0
		h.Priority = stats.Some(rapid.SampledFrom([]int32{0, systemCriticalPriority}).Draw(t, "priority"))
		w.pods = append(w.pods, h)
	}
	return &lot{ward: w, t: t, asked: map[string]admit.PodAttributes{}, waiting: map[string]chan answer{}, granted: map[string]grant{}}
}

// gives holds that there is room for a pod, which has it now.
func (l *lot) gives(uid string) {
	if n := l.taken(uid); n+1 > l.most {
		l.t.Fatalf("%s has room beside %d of %d", uid, n, l.most)
	}
	l.highest = max(l.highest, *l.asked[uid].Pod.Spec.Priority)
}

func (l *lot) answered() {
	for uid, c := range l.waiting {
		select {
		case got := <-c:
			_, out := l.asked[uid] // else it came meanwhile, and has the room
			if delete(l.waiting, uid); got.result.Admit && out {
				l.gives(uid)
				l.granted[uid] = grant{*l.asked[uid].Pod.Spec.Priority, l.now.Add(admit.PromisedFor)}
			}
		default:
		}
	}
}

// keepsWhatItGave: a promise ends by itself, or because a more critical pod was given its room.
func (l *lot) keepsWhatItGave() {
	for uid, g := range l.granted {
		switch {
		case !l.now.Before(g.until):
			delete(l.granted, uid)
		case slices.Contains(l.kept(), uid):
		case l.highest <= g.priority:
			l.t.Fatalf("what was kept for %s of priority %d is lost to one of %d", uid, g.priority, l.highest)
		default:
			delete(l.granted, uid)
		}
	}
	l.highest = 0
}

func (l *lot) end(uid string) {
	if rapid.IntRange(0, 2).Draw(l.t, "undying") == 0 {
		l.m.Refused(l.now, l.lives[uid])
	} else {
		l.dead(uid)
	}
}

func (l *lot) asks(uid string) {
	l.asked[uid] = priority(uid, systemCriticalPriority+rapid.Int32Range(-1, 5).Draw(l.t, "rank"))
	l.waiting[uid] = make(chan answer, 1)
	l.OnRequest(context.Background(), l.now, preemptRequest{pod: l.asked[uid], reply: l.waiting[uid]})
	l.answered()
}

// comes has the runtime ask for a pod that asked before, and run it, if it may.
func (l *lot) comes(uid string) {
	state, _ := l.state(l.now)
	pod := l.asked[uid]
	if !admit.Admit(pod, state).Admit {
		return
	}
	l.pods = append(l.pods, admit.HeldBy(pod))
	if l.LetIn(pod); len(l.Requests()) > 0 {
		l.OnRequest(context.Background(), l.now, <-l.Requests())
	}
	l.OnPods(read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: uid, UID: uid, Namespace: "kube-system", Name: uid, Ready: true}}}))
	l.gives(uid)
	delete(l.granted, uid)
	delete(l.asked, uid)
}

// Whatever becomes of the victims, and whoever asks and comes: a pod is admitted, and let in, only when there is room for it beside all that
// lives and all that was promised; a promise holds, but against a more critical pod; each who asks is answered once, nobody goes who may
// not, and nobody is stopped twice.
func TestNoRoomIsGivenTwice(t *testing.T) {
	outranked := 0
	rapid.Check(t, func(rt *rapid.T) {
		l := newLot(rt)
		for i := range rapid.IntRange(1, 20).Draw(rt, "turns") {
			l.now = l.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(rt, "s")) * time.Second)
			before := len(l.granted)
			switch live, came := l.dying(), slices.Sorted(maps.Keys(l.asked)); {
			case len(live) > 0 && rapid.Bool().Draw(rt, "an end"):
				l.end(rapid.SampledFrom(live).Draw(rt, "of"))
			case len(came) > 0 && rapid.IntRange(0, 2).Draw(rt, "one comes") == 0:
				l.comes(rapid.SampledFrom(came).Draw(rt, "who"))
			default:
				l.asks(fmt.Sprint("x", i))
			}
			l.Advance(l.now)
			l.answered()
			if l.keepsWhatItGave(); len(l.granted) < before {
				outranked++
			}
		}
		for _, uid := range l.dying() {
			l.dead(uid)
		}
		l.Advance(l.now)
		l.answered()
		if len(l.waiting)+len(l.inProgress) > 0 {
			rt.Fatalf("not answered: %v", l.waiting)
		}
		slices.Sort(l.stopped)
		if len(slices.Compact(slices.Clone(l.stopped))) != len(l.stopped) {
			rt.Fatalf("stopped twice: %v", l.stopped)
		}
		for _, h := range l.pods {
			if h.Spared && slices.Contains(l.stopped, string(h.UID)) {
				rt.Fatalf("%s was stopped", h.UID)
			}
		}
	})
	t.Log("turns with a promise less:", outranked)
}
