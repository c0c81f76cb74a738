package connlimit

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// guest is a connection that leaves when it is hung up on, unless it is stubborn.
type guest struct {
	*Place
	stubborn bool
	cut      int
}

func come(p *Places, key Key, most int) *guest {
	g := &guest{}
	g.Place = p.Take(key, most, func() {
		if g.cut++; !g.stubborn {
			g.Leave()
		}
	})
	return g
}

// Of those that are full, the one that has asked nothing for the longest time makes room; nobody who is being answered does, nor anybody of
// another key.
func TestWhoAsksNothingMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Places
		var all []*guest
		for range 3 {
			all = append(all, come(&p, 1, 3))
			time.Sleep(time.Second)
		}
		other := come(&p, 2, 1)
		all[0].State(http.StateActive)
		fourth := come(&p, 1, 3)
		if fourth.Place == nil || all[0].cut != 0 || all[1].cut != 1 || all[2].cut != 0 || other.cut != 0 || p.Count(1) != 3 {
			t.Fatalf("cut off: %d, %d, %d, %d", all[0].cut, all[1].cut, all[2].cut, other.cut)
		}
		time.Sleep(time.Second)
		all[0].State(http.StateIdle) // it was answered: its time begins anew
		if fifth := come(&p, 1, 3); fifth.Place == nil || all[0].cut != 0 || all[2].cut != 1 {
			t.Fatalf("cut off: %d, %d", all[0].cut, all[2].cut)
		}
		all[1].Leave()
		if p.Count(1) != 3 {
			t.Errorf("one that left twice: %d", p.Count(1))
		}
	})
}

// Where all are being answered there is no place, unless an answer takes longer than there is patience for.
func TestWhoIsBeingAnsweredStays(t *testing.T) {
	for patience, want := range map[time.Duration]bool{0: false, time.Minute: true, 2 * time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			p := Places{Patience: patience}
			first, second := come(&p, 1, 2), come(&p, 1, 2)
			first.State(http.StateActive)
			time.Sleep(time.Second)
			second.State(http.StateActive)
			if come(&p, 1, 2).Place != nil {
				t.Errorf("%v: at once", patience)
			}
			time.Sleep(time.Hour)
			if got := come(&p, 1, 2).Place != nil; got != want || first.cut > 0 != want || second.cut != 0 {
				t.Errorf("%v: a place %v, cut off %d and %d times", patience, got, first.cut, second.cut)
			}
		})
	}
}

// Who does not take its answer makes room, the one that stalls for the longest time; who takes it stays.
func TestWhoTakesNothingMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Places
		var all []*guest
		for range 3 {
			g := come(&p, 1, 3)
			g.State(http.StateActive)
			all = append(all, g)
		}
		if n, err := all[0].Write(io.Discard, []byte("x")); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		for _, g := range []*guest{all[2], all[1]} {
			from, to := io.Pipe()
			defer from.Close()
			go func() { _, _ = g.Write(to, []byte("x")) }()
			synctest.Wait()
			if come(&p, 1, 3).Place != nil {
				t.Error("at once")
			}
			time.Sleep(stallLimit / 2)
		}
		time.Sleep(stallLimit / 2)
		if fourth := come(&p, 1, 3); fourth.Place == nil || all[0].cut != 0 || all[1].cut != 0 || all[2].cut != 1 {
			t.Errorf("cut off: %d, %d, %d", all[0].cut, all[1].cut, all[2].cut)
		}
	})
}

// Who was told the end takes nobody's place, and of these there are only so many.
func TestWhoLeaves(t *testing.T) {
	var p Places
	var all []*guest
	for range mostLeaving {
		g := come(&p, 1, 1)
		if g.Place == nil {
			t.Fatal("no place beside those who leave")
		}
		g.State(http.StateActive)
		g.Leaves()
		g.Leaves()
		all = append(all, g)
	}
	if come(&p, 2, 1).Place != nil || p.Count(1) != 0 {
		t.Errorf("any number may leave at the same time; %d count", p.Count(1))
	}
	all[0].Leave()
	all[0].Leave()
	if come(&p, 2, 1).Place == nil || all[1].cut != 0 {
		t.Error("a place that was given back is not given again")
	}
}

// One that does not go when it is hung up on holds up who comes for a moment only, and is not hung up on again.
func TestWhoDoesNotGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Places
		g := come(&p, 1, 1)
		g.stubborn = true
		for range 2 {
			if begin := time.Now(); come(&p, 1, 1).Place != nil || time.Since(begin) != leaveLimit || g.cut != 1 {
				t.Errorf("after %v, cut off %d times", time.Since(begin), g.cut)
			}
		}
		g.Leave()
		if come(&p, 1, 1).Place == nil {
			t.Error("its place is not given back")
		}
	})
}
