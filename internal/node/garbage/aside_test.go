package garbage

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/node/config"
	"jettison/reclaim"
)

// The next pass removes volumes that an eviction moved aside and did not remove, regardless of the
// pod's state, and nothing else of the pod. It does so on a node with a kubelet too, because a
// kubelet does not know these volumes.
func TestVolumesThatWerePutAside(t *testing.T) {
	for _, kubelet := range []bool{true, false} {
		for _, trigger := range []reclaim.Trigger{reclaim.Periodic, reclaim.DiskPressure} {
			n := newNode(t)
			n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidB: reclaim.Active}})
			volumes := "/kubelet/pods/" + uidB + "/volumes/"
			aside := n.file(volumes + ".jettison-removes/cache/big")
			kept := n.file(volumes + "kubernetes.io~empty-dir/cache/mine")
			n.file("/kubelet/pods/" + uidA + "/volumes/kubernetes.io~empty-dir/cache/its")
			n.sandbox("s", uidB, true, time.Hour)
			if kubelet {
				n.o.Mode, n.findKubelet = config.ModeUnset, func() (bool, string) { return true, "a kubelet" }
			}
			n.container("c", "s", uidB, exited, time.Hour, "") // garbage that is left to the kubelet
			n.container("new", "s", uidB, exited, time.Minute, "")
			if r := n.Plan(t.Context(), Containers, trigger); len(r.Done) > 0 || !exists(aside) {
				t.Errorf("steps done by Plan = %+v, want none", r.Done)
			}
			r := n.pass(Containers, trigger)
			if exists(aside) || !exists(kept) || (len(n.removed()) == 0) != kubelet || (r.PlanOnly != "") != kubelet {
				t.Errorf("kubelet %v, %v: what was put aside is there: %v; removed %v, %v, %+v", kubelet, trigger, exists(aside), n.removed(), r.Problems(), r.Done)
			}
			if d := outcome(t, r, uidB); d.Outcome != Removed || d.Freed.V < 5000 {
				t.Errorf("outcome of the volumes = %+v, want removed with at least 5000 bytes", d)
			}
			if r := n.pass(Containers, trigger); len(r.Done) > 0 {
				t.Errorf("steps of the second pass = %+v, want none", r.Done)
			}
		}
	}
}

// A kubelet starts in the middle of a pass: only the volumes that were moved aside are still removed.
func TestAKubeletComesBeforeVolumesGo(t *testing.T) {
	n := newNode(t)
	aside := n.file("/kubelet/pods/" + uidB + "/volumes/.jettison-removes/cache/big")
	note := n.file("/kubelet/pods/" + uidB + "/containers/main/message")
	n.sandbox("s", uidA, true, time.Hour)
	n.container("c", "s", uidA, exited, time.Hour, "")
	n.container("new", "s", uidA, exited, time.Minute, "")
	looks := 0
	n.o.Mode, n.findKubelet = config.ModeUnset, func() (bool, string) { looks++; return looks > 1, "a kubelet" }
	r := n.pass(Containers, reclaim.Periodic)
	if exists(aside) || !exists(note) || len(n.removed()) > 0 || looks < 2 {
		t.Errorf("put aside: %v, note: %v, removed %v, %d looks: %+v", exists(aside), exists(note), n.removed(), looks, r.Done)
	}
}

// A removal that fails is retried with backoff, and blocks no other removal.
func TestWhatIsAsideAndStuckIsTriedAgain(t *testing.T) {
	n := newNode(t)
	volumes := "/kubelet/pods/" + uidB + "/volumes/"
	n.file(volumes + ".jettison-removes/cache/free")
	big := n.file(volumes + ".jettison-removes/cache/big")
	f, err := os.Open(big)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags := func(v int) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, v) }
	if err := flags(unix.STATX_ATTR_IMMUTABLE); err != nil {
		t.Skipf("this file system has no immutable files: %v", err)
	}
	defer func() { _ = flags(0) }()
	for _, want := range []Outcome{Failed, Skipped} {
		if d := outcome(t, n.pass(Containers, reclaim.Periodic), uidB); d.Outcome != want || !exists(big) {
			t.Errorf("outcome of immutable volumes = %+v, want %v and the file kept", d, want)
		}
	}
	if err := flags(0); err != nil {
		t.Fatal(err)
	}
	n.sleep(backoffFirst)
	if d := outcome(t, n.pass(Containers, reclaim.Periodic), uidB); d.Outcome != Removed || exists(big) {
		t.Errorf("outcome of the volumes = %+v, file exists %v, want removed", d, exists(big))
	}
}

// After an interrupted removal, the pod's notes and directory are removed too, unless the pod may
// still exist.
func TestNotesOfAnInterruptedRemoval(t *testing.T) {
	for name, c := range map[string]struct {
		alive func(n *node)
		stays bool
	}{
		"gone": {func(*node) {}, false},
		"evicted": {func(n *node) {
			n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidB: reclaim.Evicted}, Synced: true})
		}, false},
		"a sandbox":   {func(n *node) { n.sandbox("s", uidB, false, time.Hour) }, true},
		"a container": {func(n *node) { n.container("c", "s", uidB, running, time.Hour, "") }, true},
		"named": {func(n *node) {
			n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidB: reclaim.Active}, Synced: true})
		}, true},
		"not known": {func(n *node) { n.known.Store(&Known{}) }, true},
		"the runtime does not tell any more": {func(n *node) {
			n.r.Answer["ListPodSandbox"] = func(m any) any { n.r.Fail["ListPodSandbox"] = errors.New("not now"); return m }
		}, true},
	} {
		n := newNode(t)
		pod := "/kubelet/pods/" + uidB
		aside := n.file(pod + "/volumes/.jettison-removes/cache/big")
		note := n.file(pod + "/containers/main/0123abcd")
		c.alive(n)
		r := n.pass(Containers, reclaim.Periodic)
		if exists(aside) || exists(note) != c.stays || exists(n.root+pod) != c.stays {
			t.Errorf("%s: put aside: %v, note: %v, its directory: %v; %+v", name, exists(aside), exists(note), exists(n.root+pod), r.Done)
		}
	}
}

// If the lists may lack a ready sandbox, the pod may exist.
func TestNotesOfAPodThatIsNotTold(t *testing.T) {
	n, _ := unlistedReady(t)
	pod := "/kubelet/pods/" + uidB
	aside, note := n.file(pod+"/volumes/.jettison-removes/cache/big"), n.file(pod+"/containers/main/0123abcd")
	if r := n.pass(Containers, reclaim.Periodic); exists(aside) || !exists(note) {
		t.Errorf("volume exists %v, note exists %v, steps %+v, want only the note kept", exists(aside), exists(note), r.Done)
	}
}
