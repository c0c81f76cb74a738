package evictions

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/internal/node/kill"
	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// volumeFile lies in a volume of the node's pod.
const volumeFile = "/kubelet/pods/" + nodetest.UID + "/volumes/kubernetes.io~empty-dir/v/data"

// leaves pins the node's pod, which leaves a volume on a disk.
func (f *fixture) leaves() *kill.Victim {
	f.t.Helper()
	f.renew(softAndHard, f.host)
	f.Write(volumeFile, "x")
	f.Write("proc/1/mountinfo", "")
	f.Runs()
	victim, err := kill.Pin(f.FS, &stats.PodStats{
		PodRef: stats.PodReference{UID: nodetest.UID, Name: "pod", Namespace: "default"}, SandboxIDs: []string{"s"},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(victim.Close)
	return victim
}

// comesBack has the runtime start the pod again, at a time by the wall clock.
func (f *fixture) comesBack(at time.Time) {
	f.Runtime.Change(func() {
		f.Runtime.Sandboxes = append(f.Runtime.Sandboxes, &runtimev1.PodSandbox{
			Id: "s2", Metadata: &runtimev1.PodSandboxMetadata{Uid: nodetest.UID}, State: runtimev1.PodSandboxState_SANDBOX_READY, CreatedAt: at.UnixNano(),
		})
		f.Runtime.Containers = append(f.Runtime.Containers, &runtimev1.Container{
			Id: "c2", PodSandboxId: "s2", State: runtimev1.ContainerState_CONTAINER_RUNNING, Metadata: &runtimev1.ContainerMetadata{Name: "c"},
		})
	})
}

// left wants the volume to be there, or not, and of the sandboxes only the pod's first one removed.
func (f *fixture) left(volume bool) {
	f.t.Helper()
	var removed []string
	f.Runtime.Change(func() { removed = append(removed, f.Runtime.Removed...) })
	_, err := os.Stat(filepath.Join(f.Dir, volumeFile))
	if (err == nil) != volume || len(removed) > 1 {
		f.t.Errorf("removed %v; volume, want %v: %v\n%s", removed, volume, err, f.Text())
	}
}

// The clock is set back after the pod is back: its sandbox was made at a time that is still to come.
func TestTheClockIsSetBackAfterThePodIsBack(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.comesBack(time.Now().Add(time.Hour))
	f.carrier.removeFiles(t.Context(), victim)
	f.left(true)
}

// The clock is set after the victim was pinned: by it the sandbox in which the pod is back was made before, and is not the victim's all the
// same.
func TestTheClockIsSetBackBeforeThePodIsBack(t *testing.T) {
	for _, by := range []time.Duration{time.Second, time.Hour, 50 * 365 * 24 * time.Hour} {
		f := newFixture(t, softAndHard, nil)
		victim := f.leaves()
		pinned := kill.Now()
		pinned.Time = pinned.Time.Add(by) // as the clock was then
		victim.Since(pinned)
		f.comesBack(time.Now())
		f.carrier.removeFiles(t.Context(), victim)
		f.left(true)
	}
}

// The clock is set back, and right again later: neither when the pod is back nor at any later look is it known that it was.
func TestTheClockGoesBackAndForthDuringAnEviction(t *testing.T) {
	for _, restart := range []bool{false, true} {
		f := newFixture(t, softAndHard, nil)
		victim := f.leaves()
		if restart { // it is taken up again
			victim.Settle()
		} else if err := victim.Clean(t.Context(), f.Client, func(error) {}); err != nil {
			t.Fatal(err)
		}
		f.comesBack(time.Now().Add(-time.Hour)) // as the clock was then
		f.carrier.removeFiles(t.Context(), victim)
		f.left(true)
	}
}

// Where it was not set, a sandbox that was made before the pin and listed after it is the victim's.
func TestASandboxThatWasBeingMade(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.comesBack(time.Now().Add(-time.Second))
	f.carrier.removeFiles(t.Context(), victim)
	f.Runtime.Change(func() {
		if _, err := os.Stat(filepath.Join(f.Dir, volumeFile)); err == nil || len(f.Runtime.Sandboxes) > 0 {
			t.Errorf("left: %v, volume: %v", f.Runtime.Sandboxes, err)
		}
	})
}

// What is asked before volumes in memory are unmounted does not go by the clock either.
func TestVolumesInMemoryOfAPodThatIsBack(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.comesBack(time.Now().Add(time.Hour))
	if err := victim.Back(t.Context(), f.Client); !errors.Is(err, kill.ErrBack) {
		t.Errorf("got %v", err)
	}
}

// The pod is back while its old volume is still being removed, which takes minutes: what it writes from then on stays.
func TestThePodIsBackWhileItsVolumeIsRemoved(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	const files = 20_000
	dir := filepath.Join(f.Dir, filepath.Dir(volumeFile))
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for names := make([]os.DirEntry, files); len(names) > files-100; { // it is under way
			names, _ = os.ReadDir(dir)
		}
		f.comesBack(time.Now())
		f.Write(filepath.Dir(volumeFile)+"/new", "x")
	}()
	f.carrier.removeFiles(t.Context(), victim)
	<-done
	if _, err := os.Stat(filepath.Join(dir, "new")); err != nil {
		t.Errorf("what the pod that is back has written is gone: %v\n%s", err, f.Text())
	}
	f.left(false)
}

// A sandbox that the runtime does not delete does not keep what lies beside it: it does not run, and has its part of the time only.
func TestASandboxThatCannotBeRemovedKeepsNoVolume(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.Runtime.Fail["RemovePodSandbox"] = errors.New("device or resource busy")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // for RemoveLimit
	defer cancel()
	f.carrier.removeFiles(ctx, victim)
	f.left(false)
}

// What an eviction does not come to remove, for the power is cut or the time is over, is put aside: passes of the garbage collector go on
// with it.
func TestWhatIsNotRemovedIsPutAside(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.Runtime.Hang = map[string]bool{"RemovePodSandbox": true}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.carrier.removeFiles(ctx, victim) }()
	for f.Runtime.Calls("RemovePodSandbox") == 0 { // the call that the power is cut in
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	if uids, err := f.carrier.remove.PutAside(); err != nil || len(uids) != 1 || uids[0] != nodetest.UID {
		t.Errorf("put aside: %v, %v\n%s", uids, err, f.Text())
	}
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	f.left(false)
}

// The volumes of a pod that is back are not put aside.
func TestVolumesOfAPodThatIsBackAreNotPutAside(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.comesBack(time.Now().Add(time.Hour))
	f.carrier.removeFiles(t.Context(), victim)
	if uids, err := f.carrier.remove.PutAside(); err != nil || len(uids) > 0 {
		t.Errorf("put aside: %v, %v", uids, err)
	}
	f.left(true)
}

// A kubelet comes while files are removed, which takes minutes: the rest is that one's, but for what was put aside, which it would not know.
func TestAKubeletComesWhileFilesAreRemoved(t *testing.T) {
	for _, early := range []bool{true, false} {
		f := newFixture(t, softAndHard, nil)
		victim := f.leaves()
		const log = "/logs/default_pod_" + nodetest.UID + "/c/0.log"
		f.Write(log, "x")
		note := "/kubelet/pods/" + nodetest.UID + "/containers/c/message"
		f.Write(note, "x")
		f.carrier.kubelet = func() bool { return early || f.Runtime.Calls("RemovePodSandbox") > 0 }
		f.carrier.removeFiles(t.Context(), victim)
		for _, file := range []string{log, note} {
			if _, err := os.Stat(filepath.Join(f.Dir, file)); err != nil {
				t.Errorf("early %v: %v\n%s", early, err, f.Text())
			}
		}
		f.left(early)
		if uids, err := f.carrier.remove.PutAside(); err != nil || len(uids) > 0 {
			t.Errorf("early %v: put aside: %v, %v", early, uids, err)
		}
	}
}

// The pod is back before what was put aside is removed: that goes all the same.
func TestThePodIsBackAfterItsVolumeWasPutAside(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.Runtime.Answer["RemovePodSandbox"] = func(m any) any {
		f.Runtime.Sandboxes = append(f.Runtime.Sandboxes, &runtimev1.PodSandbox{Id: "s2", Metadata: &runtimev1.PodSandboxMetadata{Uid: nodetest.UID}})
		return m
	}
	f.carrier.removeFiles(t.Context(), victim)
	f.left(false)
	if uids, err := f.carrier.remove.PutAside(); err != nil || len(uids) > 0 {
		t.Errorf("put aside: %v, %v\n%s", uids, err, f.Text())
	}
}
