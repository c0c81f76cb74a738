package limits

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cgroup"
)

// systemd is what it was told of each slice, which it would write at its next daemon-reload.
type systemd struct {
	down  error
	asked int
	has   map[string]map[cgroup.LimitFile]cgroup.Limit
}

func (s *systemd) tell(_ context.Context, units []Unit) error {
	s.asked++
	if s.down != nil {
		return s.down
	}
	for _, u := range units {
		if s.has == nil {
			s.has = map[string]map[cgroup.LimitFile]cgroup.Limit{}
		}
		s.has[u.Name] = u.Files
	}
	return nil
}

// owed are the slices of a node that systemd is to be told of.
func (n *node) owed(groups ...string) (out []string) {
	for _, path := range groups {
		g, err := n.fs.Group(path)
		if err != nil {
			n.Fatal(err)
		}
		if _, owed, err := g.Note(noteOwed); owed || err != nil {
			out = append(out, filepath.Base(path))
		}
		g.Close()
	}
	return out
}

// Systemd does not answer in the moment in which limits are put back: the next start tells it, and no start after that.
func TestSystemdIsToldInTheEndThatALimitIsGone(t *testing.T) {
	n := newNode(t, "kubepods.slice")
	s := &systemd{}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
	w.Limit(t.Context(), all)
	if got := s.has["kubepods.slice"][cgroup.FileMemoryMax]; got.Unlimited || len(n.owed("kubepods.slice")) > 0 {
		t.Fatalf("told %v, owed %v", got, n.owed("kubepods.slice"))
	}
	s.down = errors.New("context deadline exceeded")
	if r := Mend(t.Context(), n.fs, "", false, never, s.tell); r.Err == nil || r.Restored != 3 || len(n.owed("kubepods.slice")) != 1 {
		t.Errorf("%+v", r)
	}
	s.down = nil
	for range 3 {
		if r := Mend(t.Context(), n.fs, "", false, never, s.tell); r.Err != nil || r.Restored > 0 {
			t.Errorf("%+v", r)
		}
	}
	if got := s.has["kubepods.slice"][cgroup.FileMemoryMax]; !got.Unlimited || s.asked != 3 {
		t.Errorf("systemd writes %v at its next daemon-reload; asked %d times", got, s.asked)
	}
	if len(n.owed("kubepods.slice"))+len(n.notes()) > 0 {
		t.Error("notes are left")
	}
}

// An agent that dies before it tells systemd leaves that to the next one, of the pods' slices too.
func TestWhoDiesBeforeSystemdIsTold(t *testing.T) {
	const burstable, pod = "kubepods.slice/kubepods-burstable.slice", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice"
	n := newNode(t, pod)
	known := Known{Objects: []*v1.Pod{object("b", "c 10Mi 20Mi")}}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: func(context.Context, []Unit) error { return context.Canceled }} // as if it never came to that
	w.Protect(t.Context(), known, Budget{Allocatable: 1000 * mib, Factor: 0.9, Page: 4096})
	if got := n.owed("kubepods.slice", burstable, pod); len(got) != 3 {
		t.Errorf("owed %v", got)
	}
	s := &systemd{}
	if r := Mend(t.Context(), n.fs, "", true, never, s.tell); r.Err != nil || r.Restored != 3 {
		t.Errorf("%+v", r)
	}
	if got := n.owed("kubepods.slice", burstable, pod); len(got) > 0 || len(s.has) != 3 || s.has[filepath.Base(pod)][cgroup.FileMemoryLow].Bytes != 0 {
		t.Errorf("owed %v, told %v", got, s.has)
	}
}

// A systemd that does not answer is not asked in each pass, but is as soon as something is written.
func TestSystemdThatDoesNotAnswerIsLeftAlone(t *testing.T) {
	n := newNode(t, "kubepods.slice")
	s := &systemd{down: errors.New("no bus")}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
	pass := func(want int, targets Targets) {
		t.Helper()
		if w.Limit(t.Context(), targets); s.asked != want {
			t.Errorf("asked %d times, want %d", s.asked, want)
		}
	}
	pass(1, all)
	pass(1, all)
	pass(2, Targets{MemoryMax: some(6 << 30)})
	w.refused = time.Now().Add(-tellAgain)
	pass(3, Targets{MemoryMax: some(6 << 30)})
	s.down, w.refused = nil, time.Now().Add(-tellAgain)
	pass(4, Targets{MemoryMax: some(6 << 30)})
	pass(4, Targets{MemoryMax: some(6 << 30)})
	if got := n.owed("kubepods.slice"); !slices.Equal(got, nil) || s.has["kubepods.slice"][cgroup.FileMemoryMax].Bytes != 6<<30 {
		t.Errorf("owed %v, told %v", got, s.has)
	}
}
