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

// volumeFile is a file in a volume of the node's pod.
const volumeFile = "/kubelet/pods/" + nodetest.UID + "/volumes/kubernetes.io~empty-dir/v/data"

// leaves pins the node's pod, which has a volume on a disk.
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

// restartPod starts the pod again in the runtime, created at the given wall-clock time.
func (f *fixture) restartPod(at time.Time) {
	f.Runtime.Change(func() {
		f.Runtime.Sandboxes = append(f.Runtime.Sandboxes, &runtimev1.PodSandbox{
			Id: "s2", Metadata: &runtimev1.PodSandboxMetadata{Uid: nodetest.UID}, State: runtimev1.PodSandboxState_SANDBOX_READY, CreatedAt: at.UnixNano(),
		})
		f.Runtime.Containers = append(f.Runtime.Containers, &runtimev1.Container{
			Id: "c2", PodSandboxId: "s2", State: runtimev1.ContainerState_CONTAINER_RUNNING, Metadata: &runtimev1.ContainerMetadata{Name: "c"},
		})
	})
}

// left checks whether the volume exists, and that at most the pod's first sandbox was removed.
func (f *fixture) left(volume bool) {
	f.t.Helper()
	var removed []string
	f.Runtime.Change(func() { removed = append(removed, f.Runtime.Removed...) })
	_, err := os.Stat(filepath.Join(f.Dir, volumeFile))
	if (err == nil) != volume || len(removed) > 1 {
		f.t.Errorf("removed sandboxes %v; volume must exist: %v: %v\n%s", removed, volume, err, f.Text())
	}
}

// The clock is set back after the pod came back: its sandbox's creation time is in the future.
func TestClockIsSetBackAfterThePodIsBack(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.restartPod(time.Now().Add(time.Hour))
	f.carrier.removeFiles(t.Context(), victim)
	f.left(true)
}

// The clock is set back after the victim was pinned: the sandbox in which the pod is back seems
// older than the pin, and still is not the victim's.
func TestClockIsSetBackBeforeThePodIsBack(t *testing.T) {
	for _, by := range []time.Duration{time.Second, time.Hour, 50 * 365 * 24 * time.Hour} {
		f := newFixture(t, softAndHard, nil)
		victim := f.leaves()
		pinned := kill.Now()
		pinned.Time = pinned.Time.Add(by) // by the clock of that time
		victim.Since(pinned)
		f.restartPod(time.Now())
		f.carrier.removeFiles(t.Context(), victim)
		f.left(true)
	}
}

// The clock is set back and later corrected. The agent cannot detect that, neither when the pod
// comes back nor at a later look.
func TestClockGoesBackAndForthDuringAnEviction(t *testing.T) {
	for _, restart := range []bool{false, true} {
		f := newFixture(t, softAndHard, nil)
		victim := f.leaves()
		if restart { // the eviction is resumed
			victim.Settle()
		} else if err := victim.Clean(t.Context(), f.Client, func(error) {}); err != nil {
			t.Fatal(err)
		}
		f.restartPod(time.Now().Add(-time.Hour)) // by the clock of that time
		f.carrier.removeFiles(t.Context(), victim)
		f.left(true)
	}
}

// If the clock was not set, a sandbox created before the pin and listed after it belongs to the
// victim.
func TestSandboxCreatedDuringThePin(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.restartPod(time.Now().Add(-time.Second))
	f.carrier.removeFiles(t.Context(), victim)
	f.Runtime.Change(func() {
		if _, err := os.Stat(filepath.Join(f.Dir, volumeFile)); err == nil || len(f.Runtime.Sandboxes) > 0 {
			t.Errorf("remaining sandboxes = %v, want none; volume: %v", f.Runtime.Sandboxes, err)
		}
	})
}

// The check before volumes in memory are unmounted does not depend on the clock, either.
func TestMemoryVolumesOfAPodThatIsBack(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.restartPod(time.Now().Add(time.Hour))
	if err := victim.Back(t.Context(), f.Client); !errors.Is(err, kill.ErrBack) {
		t.Errorf("Back() = %v, want ErrBack", err)
	}
}

// The pod is back while its old volume is still being removed, which takes minutes: its new files
// stay.
func TestPodIsBackWhileItsVolumeIsRemoved(t *testing.T) {
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
		for names := make([]os.DirEntry, files); len(names) > files-100; { // until the removal has begun
			names, _ = os.ReadDir(dir)
		}
		f.restartPod(time.Now())
		f.Write(filepath.Dir(volumeFile)+"/new", "x")
	}()
	f.carrier.removeFiles(t.Context(), victim)
	<-done
	if _, err := os.Stat(filepath.Join(dir, "new")); err != nil {
		t.Errorf("a file of the pod that is back was removed: %v\n%s", err, f.Text())
	}
	f.left(false)
}

// If the runtime does not delete a sandbox, the pod's volumes are removed nevertheless. The sandbox
// has no running process, and its deletion uses only its share of the time.
func TestUnremovableSandboxKeepsNoVolume(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.Runtime.Fail["RemovePodSandbox"] = errors.New("device or resource busy")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // for RemoveLimit
	defer cancel()
	f.carrier.removeFiles(ctx, victim)
	f.left(false)
}

// Leftovers that an eviction cannot remove, because of a power failure or a timeout, were moved
// away: garbage collection removes them.
func TestUnremovedLeftoversArePutAside(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.Runtime.Hang = map[string]bool{"RemovePodSandbox": true}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.carrier.removeFiles(ctx, victim) }()
	for f.Runtime.Calls("RemovePodSandbox") == 0 { // the power fails during this call
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	if uids, err := f.carrier.remove.PodsWithMovedVolumes(); err != nil || len(uids) != 1 || uids[0] != nodetest.UID {
		t.Errorf("volumes put aside of pods %v (%v), want one\n%s", uids, err, f.Text())
	}
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	f.left(false)
}

// Volumes of a pod that is back are not moved aside.
func TestVolumesOfAPodThatIsBackAreNotPutAside(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.restartPod(time.Now().Add(time.Hour))
	f.carrier.removeFiles(t.Context(), victim)
	if uids, err := f.carrier.remove.PodsWithMovedVolumes(); err != nil || len(uids) > 0 {
		t.Errorf("volumes put aside of pods %v (%v), want none", uids, err)
	}
	f.left(true)
}

// A kubelet starts while files are removed, which takes minutes: the rest is left to the kubelet,
// except the volumes that were moved aside, which a kubelet does not know.
func TestKubeletStartsWhileFilesAreRemoved(t *testing.T) {
	for _, early := range []bool{true, false} {
		f := newFixture(t, softAndHard, nil)
		victim := f.leaves()
		const log = "/logs/default_pod_" + nodetest.UID + "/c/0.log"
		f.Write(log, "x")
		note := "/kubelet/pods/" + nodetest.UID + "/containers/c/message"
		f.Write(note, "x")
		f.carrier.kubeletNow = func() bool { return early || f.Runtime.Calls("RemovePodSandbox") > 0 }
		f.carrier.removeFiles(t.Context(), victim)
		for _, file := range []string{log, note} {
			if _, err := os.Stat(filepath.Join(f.Dir, file)); err != nil {
				t.Errorf("kubelet from the start %v: %v\n%s", early, err, f.Text())
			}
		}
		f.left(early)
		if uids, err := f.carrier.remove.PodsWithMovedVolumes(); err != nil || len(uids) > 0 {
			t.Errorf("kubelet from the start %v: put aside %v (%v), want none", early, uids, err)
		}
	}
}

// A volume that was moved aside is removed even if the pod is back before its removal.
func TestPodIsBackAfterItsVolumeWasPutAside(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	victim := f.leaves()
	f.Runtime.Answer["RemovePodSandbox"] = func(m any) any {
		f.Runtime.Sandboxes = append(f.Runtime.Sandboxes, &runtimev1.PodSandbox{Id: "s2", Metadata: &runtimev1.PodSandboxMetadata{Uid: nodetest.UID}})
		return m
	}
	f.carrier.removeFiles(t.Context(), victim)
	f.left(false)
	if uids, err := f.carrier.remove.PodsWithMovedVolumes(); err != nil || len(uids) > 0 {
		t.Errorf("volumes put aside of pods %v (%v), want none\n%s", uids, err, f.Text())
	}
}
