package podstore

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// Objects that a body names again, and that are replaced before it ends, take memory until then: a member cannot have the agent keep more
// than there is by bodies that stall.
func TestObjectsThatABodyNamesAgainCount(t *testing.T) {
	s, text := New(), fat["containers"]("UID")
	n := 0
	for ; ; n++ {
		if _, _, err := s.Put(&endless{text: text, prefix: fmt.Sprint("u", n, "-"), n: 1}, false, ByMember); err != nil {
			break
		}
	}
	puts(t, s, ByMember, true)
	before := alive()
	release := make(chan struct{})
	bodies := 0
	over := make(chan error)
	for i := range 8 { // the connections of one member
		list := func() io.Reader { return &endless{text: text, prefix: fmt.Sprint("v", i, "-"), n: n} }
		if _, _, err := s.Put(list(), true, ByMember); err != nil {
			if !errors.Is(err, ErrBusy) || bodies == 0 {
				t.Error(err)
			}
			break
		}
		b := &paused{list: list(), begun: make(chan struct{}), release: release}
		go func() {
			_, _, err := s.Put(b, false, ByMember)
			over <- err
		}()
		select {
		case <-b.begun:
			bodies++
		case err := <-over: // it found no room
			if !errors.Is(err, ErrBusy) || bodies == 0 {
				t.Error(err)
			}
		}
		puts(t, s, ByMember, true)
	}
	if more := alive() - before; more > memoryMore {
		t.Errorf("%d bodies that stall keep %.1f MiB alive, want at most %d; accounted for are %d bytes", bodies,
			float64(more)/(1<<20), memoryMore>>20, s.held.Load()+s.staged.Load()+s.texts.Load())
	}
	close(release)
	for range bodies {
		if err := <-over; err != nil && !errors.Is(err, ErrFull) && !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
	}
	if s.staged.Load() != 0 || s.texts.Load() != 0 {
		t.Errorf("left: %d, %d", s.staged.Load(), s.texts.Load())
	}
}

// paused is a list of which all but the bracket that ends it comes, and that once it is released.
type paused struct {
	list           io.Reader
	begun, release chan struct{}
}

func (b *paused) Read(p []byte) (int, error) {
	n, err := b.list.Read(p)
	if n == 1 && p[0] == ']' {
		close(b.begun)
		<-b.release
	}
	return n, err
}
