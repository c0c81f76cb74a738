package admission

import (
	"context"
	"fmt"
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
