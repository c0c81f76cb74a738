package podstore

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// Objects that a body reuses and that are replaced before it ends count until then: a member cannot
// exceed the memory budget with bodies that stall.
func TestReusedObjectsCount(t *testing.T) {
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
	results := make(chan error)
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
			results <- err
		}()
		select {
		case <-b.begun:
			bodies++
		case err := <-results: // rejected
			if !errors.Is(err, ErrBusy) || bodies == 0 {
				t.Error(err)
			}
		}
		puts(t, s, ByMember, true)
	}
	if more := alive() - before; more > memoryMore {
		t.Errorf("%d stalled bodies keep %.1f MiB alive, want at most %d; charged are %d bytes", bodies,
			float64(more)/(1<<20), memoryMore>>20, s.held.Load()+s.staged.Load()+s.texts.Load())
	}
	close(release)
	for range bodies {
		if err := <-results; err != nil && !errors.Is(err, ErrFull) && !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
	}
	if s.staged.Load() != 0 || s.texts.Load() != 0 {
		t.Errorf("bytes charged after all bodies = %d, %d, want 0", s.staged.Load(), s.texts.Load())
	}
}

// paused is a list that blocks before its last bracket until release is closed.
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
