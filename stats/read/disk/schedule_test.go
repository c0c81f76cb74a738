package disk

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"jettison/stats/read/hosttest"
)

// Pods with so many files that their walks are cut off, together with others that take a round
// so long that one of them is always due: each has its turn, one after each round of the
// others, under any shortage.
func TestCutOffWalkIsRepeatedAmongDuePods(t *testing.T) {
	for _, c := range []struct {
		others int
		each   time.Duration
		many   int // pods with many files
		hurry  bool
	}{
		{3, 100 * time.Millisecond, 1, true},
		{110, 60 * time.Millisecond, 1, true}, // a round takes longer than hurriedEvery
		{3, 4 * time.Second, 2, true},
		{110, time.Second, 1, false}, // and than storageEvery
		{30, 5 * time.Second, 3, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, found := newStorageLoop(&storageWalker{}, storageEvery), map[string]storageDirs{}
			l.hurry = c.hurry
			for i := range c.others {
				found[fmt.Sprintf("other-%d", i)] = storageDirs{}
			}
			for i := range c.many {
				found[fmt.Sprintf("many-%d", i)] = storageDirs{}
			}
			turns, since := map[string]int{}, 0 // others since the last walk that was cut off
			for began := time.Now(); time.Since(began) < 2*time.Hour; {
				next, due := l.oldest(found)
				if !due {
					time.Sleep(time.Second)
					continue
				}
				s := &storage{time: time.Now(), took: c.each}
				if next[0] == 'm' {
					s.turn, _ = l.nextTurn(l.pods[next])
					s.cut, s.took = true, s.turn
					if again := turns[next] > 0; again && since < c.others {
						t.Fatalf("%+v: %s is walked again after %d others", c, next, since)
					}
					since = 0
				} else {
					since++
				}
				turns[next]++
				time.Sleep(s.took)
				l.pods[next] = s
			}
			for i := range c.many {
				if got := turns[fmt.Sprintf("many-%d", i)]; got < 4 {
					t.Errorf("%+v: pod %d was walked %d times in two hours", c, i, got)
				}
			}
		})
	}
}

// If pods' known usage does not explain a shortage, walks that were cut off are repeated
// immediately and in the longest turn. The agent does not wait for them, and afterwards these
// pods are ordinary again.
func TestWalksThatWereCutOffAreFinished(t *testing.T) {
	s, found := volumesOf(t, t.TempDir(), "a/one", "b/one")
	synctest.Test(t, func(t *testing.T) {
		l := newStorageLoop(s, time.Minute)
		l.lazy = true
		l.hurry = true
		l.keep(found, nil)
		l.pods["b"] = &storage{time: time.Now().Add(time.Hour)} // irrelevant here
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		s.w = paced(hang)
		cutOff := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			if l.measure(t.Context(), "a", found["a"]); time.Since(began) != want || !l.pods["a"].cut {
				t.Errorf("repeated walk's turn lasted %v, want %v", time.Since(began), want)
			}
		}
		cutOff(hurriedTurn)
		asked := time.Now()
		if l.Finish(asked); !l.Fresh(l.pods["a"].time) {
			t.Error("Fresh waits for the repeated walk")
		}
		if next, due := l.oldest(found); next != "a" || !due {
			t.Errorf("next pod before the repetition = %q", next)
		}
		cutOff(turn)
		l.Finish(asked)
		l.hurry = false
		if next, due := l.oldest(found); due {
			t.Errorf("next pod after the repeated walk = %q", next)
		}
		l.pods["a"].turn, l.hurry = hurriedTurn, true
		cutOff(2 * hurriedTurn)
		s.w = paced(hosttest.NoPause)
		l.measure(t.Context(), "a", found["a"])
		l.hurry = false
		l.Finish(time.Now())
		if next, due := l.oldest(found); due {
			t.Errorf("next pod = %q, which was walked to its end", next)
		}
	})
}

// A turn that started while no disk was short is cut off after a first hurried turn once one
// is: the choice of a victim needs the figures of all pods within seconds. The same applies to
// the turn of a pod with a walk that was cut off before, and of one to be finished.
func TestShortDiskCutsOffTheCurrentTurn(t *testing.T) {
	s, found := volumesOf(t, t.TempDir(), "a/one")
	s.w = paced(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	for _, c := range []struct {
		name   string
		cut    time.Duration // length of the previous turn, which was cut off; zero: none
		finish bool
		after  time.Duration // the disk becomes short
		want   time.Duration
	}{
		{"first", 0, false, 2 * time.Second, hurriedTurn},
		{"first, late", 0, false, 30 * time.Second, 30 * time.Second},
		{"cut off before", turn, false, 2 * time.Second, hurriedTurn},
		{"cut off before, late", turn, false, 30 * time.Second, 30 * time.Second},
		{"to be finished", turn, true, 2 * time.Second, hurriedTurn},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newStorageLoop(s, time.Minute)
			if c.cut > 0 {
				l.pods["a"] = &storage{time: time.Now(), cut: true, turn: c.cut}
			}
			time.Sleep(time.Second)
			if c.finish {
				l.Finish(time.Now())
			}
			time.AfterFunc(c.after, func() { l.setHurry(true) })
			began := time.Now()
			if l.measure(t.Context(), "a", found["a"]); time.Since(began) != c.want || !l.pods["a"].cut {
				t.Errorf("%s: current turn lasted %v, want %v", c.name, time.Since(began), c.want)
			}
		})
	}
}

// A disk that is short again after a moment cuts off no turn that started while it was short.
func TestADiskThatIsShortAgainCutsOffNoTurn(t *testing.T) {
	s, found := volumesOf(t, t.TempDir(), "a/one")
	synctest.Test(t, func(t *testing.T) {
		l := newStorageLoop(s, time.Minute)
		l.setHurry(true)
		l.pods["a"] = &storage{cut: true, turn: 4 * hurriedTurn}
		s.w = paced(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		for i := range 6 {
			time.AfterFunc(time.Duration(i+1)*5*time.Second, func() { l.setHurry(i%2 == 1) })
		}
		began := time.Now()
		if l.measure(t.Context(), "a", found["a"]); time.Since(began) != 8*hurriedTurn {
			t.Errorf("turn in the second hurry lasted %v, want %v", time.Since(began), 8*hurriedTurn)
		}
	})
}

// If every pod is measured once, a pod with many files delays the others for a moment only, and gets
// the rest of the time.
func TestOneRoundIsNotHeldUpByOnePod(t *testing.T) {
	s, found := volumesOf(t, t.TempDir(), "a/huge", "b/small", "c/small")
	synctest.Test(t, func(t *testing.T) {
		l := newStorageLoop(s, storageEvery)
		l.oneRound = true
		l.keep(found, nil)
		var ends []time.Duration // of the turns of a
		for began := time.Now(); time.Since(began) < 5*time.Second; {
			next, due := l.oldest(found)
			if !due {
				t.Fatalf("no measurement is due after %v, although a was cut off", time.Since(began))
			}
			s.w = paced(hosttest.NoPause)
			if next == "a" {
				s.w = paced(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			}
			l.measure(t.Context(), next, found[next])
			if took := time.Since(began); next == "a" {
				ends = append(ends, took)
			} else if took > time.Second {
				t.Errorf("%s was measured after %v, want less than 1s", next, took)
			}
		}
		if len(l.pods) != 3 || len(ends) < 4 {
			t.Errorf("%d of 3 pods were measured, a in turns that ended at %v, want 4 turns", len(l.pods), ends)
		}
	})
}
