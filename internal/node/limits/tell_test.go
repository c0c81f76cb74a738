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
	down    error
	refuses string // a unit, and takes all others
	asked   int
	has     map[string]map[cgroup.LimitFile]cgroup.Limit
}

func (s *systemd) tell(_ context.Context, units []Unit, told func(Unit)) error {
	s.asked++
	if s.down != nil {
		return s.down
	}
	for _, u := range units {
		if u.Name == s.refuses {
			continue
		}
		if s.has == nil {
			s.has = map[string]map[cgroup.LimitFile]cgroup.Limit{}
		}
		s.has[u.Name] = u.Files
		told(u)
	}
	if s.refuses != "" {
		return errors.New("no such unit")
	}
	return nil
}

// reload has systemd write the memory.max of a slice that it was told of last.
func (s *systemd) reload(n *node, path string) {
	n.Helper()
	n.write(path+"/memory.max", s.has[filepath.Base(path)][cgroup.FileMemoryMax].String()+"\n")
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
	w := &Writer{FS: n.fs, Kubelet: never, Tell: func(context.Context, []Unit, func(Unit)) error { return context.Canceled }} // as if it never came to that
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

// What systemd sets back before it is told that a limit is gone is put back once more, by a later pass or another process, and systemd is
// told what was there before the agent came: not what the file says.
func TestALimitThatSystemdSetsBackBeforeItIsTold(t *testing.T) {
	for name, next := range map[string]func(*Writer) Result{
		"a later pass":     func(w *Writer) Result { return w.Undo(t.Context(), true, false) },
		"the next process": func(w *Writer) Result { return Mend(t.Context(), w.FS, "", false, never, w.Tell) },
	} {
		n := newNode(t, "kubepods.slice")
		s := &systemd{}
		w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
		w.Limit(t.Context(), all)
		s.down = errors.New("no bus")
		if r := w.Undo(t.Context(), true, false); r.Restored != 3 || r.Left != (Left{Word: true}) {
			t.Errorf("%s: %+v", name, r)
		}
		n.expect(name+": put back", map[string]string{})
		s.reload(n, "kubepods.slice")
		s.down, w.refused = nil, time.Time{}
		if r := next(w); r.Restored != 1 || r.Left != (Left{}) || r.Err != nil {
			t.Errorf("%s: %+v", name, r)
		}
		s.reload(n, "kubepods.slice")
		n.expect(name, map[string]string{})
		if left := n.notes(); len(left)+len(n.owed("kubepods.slice")) > 0 {
			t.Errorf("%s: notes are left: %v", name, left)
		}
	}
}

// A systemd that was down for some steps of a limit sets back one that is older than the last: it is the agent's own all the same.
func TestAnOldLimitThatSystemdSetsBack(t *testing.T) {
	n := newNode(t, "kubepods.slice")
	s := &systemd{}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
	w.Limit(t.Context(), Targets{MemoryMax: some(9 << 30)})
	s.down = errors.New("no bus")
	for _, gib := range []uint64{8, 7, 6} {
		w.Limit(t.Context(), Targets{MemoryMax: some(gib << 30)})
	}
	s.reload(n, "kubepods.slice")
	n.expect("set back", map[string]string{"kubepods.slice memory.max": "9663676416"})
	w.Limit(t.Context(), Targets{MemoryMax: some(5 << 30)})
	s.reload(n, "kubepods.slice")
	s.down = nil
	if r := w.Undo(t.Context(), true, false); r.Restored != 1 || r.Err != nil {
		t.Errorf("%+v", r)
	}
	n.expect("put back", map[string]string{})
}

// A slice that systemd does not take keeps it from being told of no other, and stays to be told.
func TestOneSliceThatSystemdDoesNotTake(t *testing.T) {
	const burstable, pod = "kubepods.slice/kubepods-burstable.slice", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice"
	n := newNode(t, pod)
	s := &systemd{refuses: filepath.Base(burstable)}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
	known := Known{Objects: []*v1.Pod{object("b", "c 10Mi 20Mi")}}
	w.Protect(t.Context(), known, Budget{Allocatable: 1000 * mib, Factor: 0.9, Page: 4096})
	if got := n.owed("kubepods.slice", burstable, pod); !slices.Equal(got, []string{filepath.Base(burstable)}) {
		t.Errorf("owed %v", got)
	}
	if r := w.Undo(t.Context(), false, true); !r.Left.Word || r.Restored != 3 {
		t.Errorf("%+v", r)
	}
	if got := n.notes(); !slices.Equal(got, []string{burstable + " memory.low"}) {
		t.Errorf("noted %v", got)
	}
}

// A name says where a slice lies: what a pod makes below itself is no other's.
func TestUnitName(t *testing.T) {
	const pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice"
	for at, want := range map[string]string{
		"kubepods.slice": "kubepods.slice", pod: "kubepods-burstable-podb.slice", "a.slice/a-kubepods.slice": "a-kubepods.slice", "kubepods": "", "": "",
		pod + "/system.slice": "", "kubepods/poda/kubepods.slice": "", pod + "/cri-containerd-a.scope": "", "-.slice": "", ".slice": "", "a/-.slice": "",
	} {
		if got := unitName(at); got != want {
			t.Errorf("%q: %q, want %q", at, got, want)
		}
	}
}

// What systemd sets back in the moment in which it is told is not what it knows from then on: that stays known for the agent's own, and
// what was set back is put right by the next pass.
func TestWhatSystemdSetsBackWhileItIsTold(t *testing.T) {
	for _, undo := range []bool{false, true} {
		n := newNode(t, "kubepods.slice")
		s := &systemd{}
		w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
		pass := func(gib uint64) Result { return w.Limit(t.Context(), Targets{MemoryMax: some(gib << 30)}) }
		pass(9)
		s.down = errors.New("no bus")
		pass(8)
		pass(7)
		s.down = nil
		w.Tell = func(ctx context.Context, units []Unit, told func(Unit)) error {
			s.reload(n, "kubepods.slice")
			return s.tell(ctx, units, told)
		}
		if undo {
			if r := w.Undo(t.Context(), true, false); r.Left != (Left{Word: true}) {
				t.Errorf("%+v", r)
			}
			n.expect("set back", map[string]string{"kubepods.slice memory.max": "9663676416"})
		} else {
			pass(6)
			if got := n.owed("kubepods.slice"); len(got) != 1 {
				t.Errorf("owed %v", got)
			}
			s.reload(n, "kubepods.slice") // as it does in the end, with what it was told
			n.expect("told", map[string]string{"kubepods.slice memory.max": "6442450944"})
		}
		w.Tell = s.tell
		for range 2 {
			if r := w.Undo(t.Context(), true, false); r.Err != nil || r.Left != (Left{}) {
				t.Errorf("undo %v: %+v", undo, r)
			}
		}
		n.expect("put back", map[string]string{})
		if left := n.notes(); len(left)+len(n.owed("kubepods.slice")) > 0 {
			t.Errorf("undo %v: notes are left: %v", undo, left)
		}
	}
}
