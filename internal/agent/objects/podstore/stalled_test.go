package podstore

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// stalled is a body of which so much comes, and then nothing until it is released.
type stalled struct {
	text    io.Reader
	begun   chan struct{} // closed: all of the text was read
	release chan struct{}
}

func (b *stalled) Read(p []byte) (int, error) {
	n, err := b.text.Read(p)
	if err == io.EOF {
		close(b.begun)
		<-b.release
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// stall has members hand over bodies that do not end, until all that there is for them is taken to the last KiB.
func stall(t *testing.T, s *Store) (release func()) {
	var all []*stalled
	over := make(chan error)
	for size := 1 << 20; size >= 16<<10; { // what is smaller is free
		b := &stalled{begun: make(chan struct{}), release: make(chan struct{})}
		b.text = strings.NewReader(`[{"metadata":{"uid":"` + strings.Repeat("u", freeText+size))
		go func() {
			_, _, err := s.Put(b, false, ByMember)
			over <- err
		}()
		select {
		case <-b.begun:
			all = append(all, b)
		case err := <-over: // it found no room
			if err == nil {
				t.Error("it is taken")
			}
			size /= 2
		}
	}
	if len(all) < 3 {
		t.Errorf("only %d stalled", len(all))
	}
	return func() {
		for _, b := range all {
			close(b.release)
			if err := <-over; err == nil {
				t.Error("a body that breaks off is taken")
			}
		}
	}
}

// Members whose bodies do not end keep neither root out, nor what another member puts or asks that is small.
func TestStalledBodiesLockNobodyOut(t *testing.T) {
	s := New()
	release := stall(t, s)
	if got := s.staged.Load() + s.texts.Load(); got > maxBoth {
		t.Errorf("members take %d bytes, want at most %d", got, maxBoth)
	}
	last := &underway{s: s, by: ByMember}
	last.take(0, maxBoth) // as if it were all to the last byte, and more
	for _, c := range []struct {
		by   By
		pods int
	}{{ByMember, 1}, {ByRoot, 1}, {ByRoot, 110}} {
		if _, _, err := s.Put(list(0, c.pods), true, c.by); err != nil {
			t.Errorf("by %v: %d pods: %v", c.by, c.pods, err)
		}
	}
	for _, by := range []By{ByMember, ByRoot} {
		_, done, err := s.Ask(strings.NewReader(text(fmt.Sprint("asks", by), 0)), FormJSON, by)
		if err != nil {
			t.Errorf("by %v: a pod that asks: %v", by, err)
		}
		done()
	}
	last.end()
	release()
	if s.staged.Load() != 0 || s.texts.Load() != 0 || s.roots.Load() != 0 {
		t.Errorf("left: %d, %d, %d of root's", s.staged.Load(), s.texts.Load(), s.roots.Load())
	}
}

// Members that put as many objects as they may leave room for root's.
func TestRootHasRoomBesideMembers(t *testing.T) {
	s := New()
	n := 0
	for text := fat["labels"]("UID"); ; n++ {
		if _, _, err := s.Put(&endless{text: text, prefix: fmt.Sprint("u", n, "-"), n: 1}, false, ByMember); err != nil {
			break
		}
	}
	if _, _, err := s.Put(list(0, 100), false, ByRoot); err != nil || n == 0 {
		t.Errorf("beside %d pods of members': %v", n, err)
	}
	if got := len(s.Snapshot().Members); got != n {
		t.Errorf("%d pods of members' are left, want %d", got, n)
	}
}
