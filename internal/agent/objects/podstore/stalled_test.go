package podstore

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// stalled is a body that blocks after its text until release is closed.
type stalled struct {
	text    io.Reader
	begun   chan struct{} // closed when all of the text was read
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

// stall starts bodies of members that do not end, until they use all of the members' budget, to the
// last KiB.
func stall(t *testing.T, s *Store) (release func()) {
	var all []*stalled
	results := make(chan error)
	for size := 1 << 20; size >= 16<<10; { // smaller ones are free
		b := &stalled{begun: make(chan struct{}), release: make(chan struct{})}
		b.text = strings.NewReader(`[{"metadata":{"uid":"` + strings.Repeat("u", freeText+size))
		go func() {
			_, _, err := s.Put(b, false, ByMember)
			results <- err
		}()
		select {
		case <-b.begun:
			all = append(all, b)
		case err := <-results: // rejected
			if err == nil {
				t.Error("Put of an incomplete body accepted")
			}
			size /= 2
		}
	}
	if len(all) < 3 {
		t.Errorf("%d bodies stalled, want at least 3", len(all))
	}
	return func() {
		for _, b := range all {
			close(b.release)
			if err := <-results; err == nil {
				t.Error("Put of a truncated body accepted")
			}
		}
	}
}

// Members with endless bodies block neither root, nor small requests of other members.
func TestStalledBodiesBlockNoOther(t *testing.T) {
	s := New()
	release := stall(t, s)
	if got := s.staged.Load() + s.texts.Load(); got > maxBoth {
		t.Errorf("stalled members use %d bytes, want at most %d", got, maxBoth)
	}
	last := &request{s: s, by: ByMember}
	last.charge(0, maxBoth) // more than the members' budget
	for _, c := range []struct {
		by   Role
		pods int
	}{{ByMember, 1}, {ByRoot, 1}, {ByRoot, 110}} {
		if _, _, err := s.Put(list(0, c.pods), true, c.by); err != nil {
			t.Errorf("Put by %v of %d pods: %v", c.by, c.pods, err)
		}
	}
	for _, by := range []Role{ByMember, ByRoot} {
		_, done, err := s.Ask(strings.NewReader(text(fmt.Sprint("asks", by), 0)), FormJSON, by)
		if err != nil {
			t.Errorf("Ask by %v with stalled members: %v", by, err)
		}
		done()
	}
	last.release()
	release()
	if s.staged.Load() != 0 || s.texts.Load() != 0 || s.roots.Load() != 0 {
		t.Errorf("bytes charged after release = %d, %d, root's %d; want 0", s.staged.Load(), s.texts.Load(), s.roots.Load())
	}
}

// Members that use all of their objects' limit leave room for root's.
func TestRootFitsWithMembers(t *testing.T) {
	s := New()
	n := 0
	for text := fat["labels"]("UID"); ; n++ {
		if _, _, err := s.Put(&endless{text: text, prefix: fmt.Sprint("u", n, "-"), n: 1}, false, ByMember); err != nil {
			break
		}
	}
	if _, _, err := s.Put(list(0, 100), false, ByRoot); err != nil || n == 0 {
		t.Errorf("Put of root with %d pods of members: %v", n, err)
	}
	if got := len(s.Snapshot().Members); got != n {
		t.Errorf("%d pods of members left after root's put, want %d", got, n)
	}
}
