package connlimit

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// testConn is a connection that releases its place when it is closed, unless it is stubborn.
type testConn struct {
	*Place
	stubborn bool
	closes   int
}

func connect(p *Places, key Key, limit int) *testConn {
	c := &testConn{}
	c.Place = p.Acquire(key, limit, func() {
		if c.closes++; !c.stubborn {
			c.Release()
		}
	})
	return c
}

// The connection that has been idle for the longest time is replaced; busy connections and those of
// other keys keep their places.
func TestIdleConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Places
		var all []*testConn
		for range 3 {
			all = append(all, connect(&p, 1, 3))
			time.Sleep(time.Second)
		}
		other := connect(&p, 2, 1)
		all[0].State(http.StateActive)
		fourth := connect(&p, 1, 3)
		if fourth.Place == nil || all[0].closes != 0 || all[1].closes != 1 || all[2].closes != 0 || other.closes != 0 || p.Count(1) != 3 {
			t.Fatalf("closes of the three connections and the other key = %d, %d, %d, %d, want 0, 1, 0, 0",
				all[0].closes, all[1].closes, all[2].closes, other.closes)
		}
		time.Sleep(time.Second)
		all[0].State(http.StateIdle) // its request is answered: its idle time begins now
		if fifth := connect(&p, 1, 3); fifth.Place == nil || all[0].closes != 0 || all[2].closes != 1 {
			t.Fatalf("closes of connections 0 and 2 = %d, %d, want 0, 1", all[0].closes, all[2].closes)
		}
		all[1].Release()
		if p.Count(1) != 3 {
			t.Errorf("places after a second Release = %d, want 3", p.Count(1))
		}
	})
}

// When all connections are busy, a new one gets no place until a response exceeds AnswerTimeout.
func TestBusyConnectionKeepsItsPlace(t *testing.T) {
	for timeout, want := range map[time.Duration]bool{0: false, time.Minute: true, 2 * time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			p := Places{AnswerTimeout: timeout}
			first, second := connect(&p, 1, 2), connect(&p, 1, 2)
			first.State(http.StateActive)
			time.Sleep(time.Second)
			second.State(http.StateActive)
			if connect(&p, 1, 2).Place != nil {
				t.Errorf("AnswerTimeout %v: busy connection replaced after one second", timeout)
			}
			time.Sleep(time.Hour)
			if got := connect(&p, 1, 2).Place != nil; got != want || first.closes > 0 != want || second.closes != 0 {
				t.Errorf("AnswerTimeout %v, after an hour: place acquired = %v, want %v; closes = %d and %d",
					timeout, got, want, first.closes, second.closes)
			}
		})
	}
}

// A client that does not read its response is replaced, the longest stalled first; one that reads
// stays.
func TestStalledConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Places
		var all []*testConn
		for range 3 {
			c := connect(&p, 1, 3)
			c.State(http.StateActive)
			all = append(all, c)
		}
		if n, err := all[0].Write(io.Discard, []byte("x")); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		for _, c := range []*testConn{all[2], all[1]} {
			from, to := io.Pipe()
			defer from.Close()
			go func() { _, _ = c.Write(to, []byte("x")) }()
			synctest.Wait()
			if connect(&p, 1, 3).Place != nil {
				t.Error("connection replaced before stallTimeout")
			}
			time.Sleep(stallTimeout / 2)
		}
		time.Sleep(stallTimeout / 2)
		if fourth := connect(&p, 1, 3); fourth.Place == nil || all[0].closes != 0 || all[1].closes != 0 || all[2].closes != 1 {
			t.Errorf("closes of the three connections = %d, %d, %d, want 0, 0, 1", all[0].closes, all[1].closes, all[2].closes)
		}
	})
}

// Closing connections use no place of their key, and their number is bounded.
func TestClosingConnections(t *testing.T) {
	var p Places
	var all []*testConn
	for range maxClosing {
		c := connect(&p, 1, 1)
		if c.Place == nil {
			t.Fatal("no place acquired although all others are closing")
		}
		c.State(http.StateActive)
		c.Closing()
		c.Closing()
		all = append(all, c)
	}
	if connect(&p, 2, 1).Place != nil || p.Count(1) != 0 {
		t.Errorf("connection accepted beyond maxClosing, or places = %d, want 0", p.Count(1))
	}
	all[0].Release()
	all[0].Release()
	if connect(&p, 2, 1).Place == nil || all[1].closes != 0 {
		t.Error("released place not available to the next connection")
	}
}

// A connection that does not release its place delays a new one by releaseTimeout, and is closed
// only once.
func TestConnectionThatDoesNotRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Places
		c := connect(&p, 1, 1)
		c.stubborn = true
		for range 2 {
			if begin := time.Now(); connect(&p, 1, 1).Place != nil || time.Since(begin) != releaseTimeout || c.closes != 1 {
				t.Errorf("second connection decided after %v, want %v without a place; closes = %d, want 1",
					time.Since(begin), releaseTimeout, c.closes)
			}
		}
		c.Release()
		if connect(&p, 1, 1).Place == nil {
			t.Error("no place acquired after Release")
		}
	})
}
