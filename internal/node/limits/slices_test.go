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

// systemd is a fake systemd, with the values of each slice that it would write at its next
// daemon-reload.
type systemd struct {
	down    error
	refuses string // the rejected unit
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

// reload makes systemd write the memory.max of a slice that it knows.
func (s *systemd) reload(n *node, path string) {
	n.Helper()
	n.write(path+"/memory.max", s.has[filepath.Base(path)][cgroup.FileMemoryMax].String()+"\n")
}

// owed returns the slices that systemd must be updated about.
func (n *node) owed(groups ...string) (out []string) {
	for _, path := range groups {
		g, err := n.fs.Group(path)
		if err != nil {
			n.Fatal(err)
		}
		if _, owed, err := g.Note(notePending); owed || err != nil {
			out = append(out, filepath.Base(path))
		}
		g.Close()
	}
	return out
}

// If systemd does not answer during a restore, the next start updates it, and later starts do not.
func TestNextStartUpdatesSystemd(t *testing.T) {
	n := newNode(t, "kubepods.slice")
	s := &systemd{}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
	w.Limit(t.Context(), all)
	if got := s.has["kubepods.slice"][cgroup.FileMemoryMax]; got.Unlimited || len(n.owed("kubepods.slice")) > 0 {
		t.Fatalf("after the first pass: value of systemd %v, pending %v", got, n.owed("kubepods.slice"))
	}
	s.down = errors.New("context deadline exceeded")
	if r := Restore(t.Context(), n.fs, "", false, never, s.tell); r.Err == nil || r.Restored != 3 || len(n.owed("kubepods.slice")) != 1 {
		t.Errorf("restore without systemd: result %+v, want it left", r)
	}
	s.down = nil
	for range 3 {
		if r := Restore(t.Context(), n.fs, "", false, never, s.tell); r.Err != nil || r.Restored > 0 {
			t.Errorf("result of the next start = %+v", r)
		}
	}
	if got := s.has["kubepods.slice"][cgroup.FileMemoryMax]; !got.Unlimited || s.asked != 3 {
		t.Errorf("systemd would write %v at daemon-reload, after %d updates", got, s.asked)
	}
	if len(n.owed("kubepods.slice"))+len(n.notes()) > 0 {
		t.Error("notes remain after the update of systemd")
	}
}

// If an agent dies before it updates systemd, the next one does, including the pods' slices.
func TestDeathBeforeSystemdUpdate(t *testing.T) {
	const burstable, pod = "kubepods.slice/kubepods-burstable.slice", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice"
	n := newNode(t, pod)
	known := Known{Objects: []*v1.Pod{object("b", "c 10Mi 20Mi")}}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: func(context.Context, []Unit, func(Unit)) error { return context.Canceled }} // as if the agent died before the update
	w.Protect(t.Context(), known, Budget{Allocatable: 1000 * mib, Factor: 0.9, Page: 4096})
	if got := n.owed("kubepods.slice", burstable, pod); len(got) != 3 {
		t.Errorf("slices pending for systemd = %v", got)
	}
	s := &systemd{}
	if r := Restore(t.Context(), n.fs, "", true, never, s.tell); r.Err != nil || r.Restored != 3 {
		t.Errorf("result of the next process = %+v", r)
	}
	if got := n.owed("kubepods.slice", burstable, pod); len(got) > 0 || len(s.has) != 3 || s.has[filepath.Base(pod)][cgroup.FileMemoryLow].Bytes != 0 {
		t.Errorf("slices pending = %v, values of systemd = %v", got, s.has)
	}
}

// A systemd that does not answer is not called in each pass, but again as soon as something is
// written.
func TestUnreachableSystemdPause(t *testing.T) {
	n := newNode(t, "kubepods.slice")
	s := &systemd{down: errors.New("no bus")}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
	pass := func(want int, targets Targets) {
		t.Helper()
		if w.Limit(t.Context(), targets); s.asked != want {
			t.Errorf("updates of systemd = %d, want %d", s.asked, want)
		}
	}
	pass(1, all)
	pass(1, all)
	pass(2, Targets{MemoryMax: some(6 << 30)})
	w.systemdFailed = time.Now().Add(-systemdPause)
	pass(3, Targets{MemoryMax: some(6 << 30)})
	s.down, w.systemdFailed = nil, time.Now().Add(-systemdPause)
	pass(4, Targets{MemoryMax: some(6 << 30)})
	pass(4, Targets{MemoryMax: some(6 << 30)})
	if got := n.owed("kubepods.slice"); !slices.Equal(got, nil) || s.has["kubepods.slice"][cgroup.FileMemoryMax].Bytes != 6<<30 {
		t.Errorf("slices pending = %v, values of systemd = %v", got, s.has)
	}
}

// If systemd resets a limit before it is updated about the restore, a later pass or process
// restores it again, and sends systemd the value from before the agent, not the current one.
func TestSystemdResetsBeforeUpdate(t *testing.T) {
	for name, next := range map[string]func(*Writer) Result{
		"a later pass":     func(w *Writer) Result { return w.Undo(t.Context(), true, false) },
		"the next process": func(w *Writer) Result { return Restore(t.Context(), w.FS, "", false, never, w.Tell) },
	} {
		n := newNode(t, "kubepods.slice")
		s := &systemd{}
		w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
		w.Limit(t.Context(), all)
		s.down = errors.New("no bus")
		if r := w.Undo(t.Context(), true, false); r.Restored != 3 || r.Left != (Remaining{Systemd: true}) {
			t.Errorf("%s: result of the restore without systemd = %+v", name, r)
		}
		n.expect(name+": put back", map[string]string{})
		s.reload(n, "kubepods.slice")
		s.down, w.systemdFailed = nil, time.Time{}
		if r := next(w); r.Restored != 1 || r.Left != (Remaining{}) || r.Err != nil {
			t.Errorf("%s: result of the later pass = %+v", name, r)
		}
		s.reload(n, "kubepods.slice")
		n.expect(name, map[string]string{})
		if left := n.notes(); len(left)+len(n.owed("kubepods.slice")) > 0 {
			t.Errorf("%s: notes after the update = %v", name, left)
		}
	}
}

// A systemd that missed some steps of a limit resets an older one: it is still identified as the
// agent's.
func TestSystemdResetsOldLimit(t *testing.T) {
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
		t.Errorf("restore after an old reset: result %+v", r)
	}
	n.expect("put back", map[string]string{})
}

// A slice that systemd rejects does not prevent the update of others, and stays pending.
func TestRejectedSlice(t *testing.T) {
	const burstable, pod = "kubepods.slice/kubepods-burstable.slice", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice"
	n := newNode(t, pod)
	s := &systemd{refuses: filepath.Base(burstable)}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
	known := Known{Objects: []*v1.Pod{object("b", "c 10Mi 20Mi")}}
	w.Protect(t.Context(), known, Budget{Allocatable: 1000 * mib, Factor: 0.9, Page: 4096})
	if got := n.owed("kubepods.slice", burstable, pod); !slices.Equal(got, []string{filepath.Base(burstable)}) {
		t.Errorf("slices pending for systemd = %v, want the rejected one", got)
	}
	if r := w.Undo(t.Context(), false, true); !r.Left.Systemd || r.Restored != 3 {
		t.Errorf("result of the restore = %+v, want the slice left for systemd", r)
	}
	if got := n.notes(); !slices.Equal(got, []string{burstable + " memory.low"}) {
		t.Errorf("notes after the next pass = %v", got)
	}
}

// A slice's name determines its path, so a cgroup that a pod creates below itself is never mistaken
// for another's slice.
func TestUnitName(t *testing.T) {
	const pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb.slice"
	for at, want := range map[string]string{
		"kubepods.slice": "kubepods.slice", pod: "kubepods-burstable-podb.slice", "a.slice/a-kubepods.slice": "a-kubepods.slice", "kubepods": "", "": "",
		pod + "/system.slice": "", "kubepods/poda/kubepods.slice": "", pod + "/cri-containerd-a.scope": "", "-.slice": "", ".slice": "", "a/-.slice": "",
	} {
		if got := unitName(at); got != want {
			t.Errorf("unit name of %q = %q, want %q", at, got, want)
		}
	}
}

// If systemd resets a value during its update, the value stays identified as the agent's, and the
// next pass corrects it.
func TestSystemdResetsDuringUpdate(t *testing.T) {
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
			if r := w.Undo(t.Context(), true, false); r.Left != (Remaining{Systemd: true}) {
				t.Errorf("pass with a reset meanwhile: result %+v", r)
			}
			n.expect("set back", map[string]string{"kubepods.slice memory.max": "9663676416"})
		} else {
			pass(6)
			if got := n.owed("kubepods.slice"); len(got) != 1 {
				t.Errorf("slices pending after the reset = %v", got)
			}
			s.reload(n, "kubepods.slice") // with the values of the update
			n.expect("told", map[string]string{"kubepods.slice memory.max": "6442450944"})
		}
		w.Tell = s.tell
		for range 2 {
			if r := w.Undo(t.Context(), true, false); r.Err != nil || r.Left != (Remaining{}) {
				t.Errorf("with undo %v, result of the next pass = %+v", undo, r)
			}
		}
		n.expect("put back", map[string]string{})
		if left := n.notes(); len(left)+len(n.owed("kubepods.slice")) > 0 {
			t.Errorf("with undo %v, notes after the next pass = %v", undo, left)
		}
	}
}
