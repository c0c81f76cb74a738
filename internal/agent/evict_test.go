package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/eviction"
	"jettison/internal/kill"
	"jettison/stats"
	"jettison/stats/read"
)

// What is measured right before a kill is held against the threshold that asks for it: a softer one, which is met all along, is no
// reason to kill at once.
func TestAHardKillIsAbandonedWhileOnlyTheSoftThresholdIsMet(t *testing.T) {
	n := newTestNode(t)
	n.a = newAgent(Options{Log: n.a.log, Config: configOf(t, `
evictionHard: {memory.available: 100Mi}
evictionSoft: {memory.available: 200Mi}
evictionSoftGracePeriod: {memory.available: 10m}
`)}, n.a.Sources)
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.kill", "")
	d := n.victim(90, time.Now())
	n.available(150)
	n.a.evict(t.Context(), &d, 0)
	if len(n.a.underway) != 0 || !strings.Contains(n.log.String(), "eviction abandoned") {
		t.Errorf("under way %v\n%s", n.a.underway, n.log)
	}
}

// A victim that is known by its object only cannot be killed: it holds up neither the other looks nor the processor.
func TestAVictimWithoutACgroupHoldsUpNobody(t *testing.T) {
	n := newTestNode(t)
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.events", "populated 0\nfrozen 0\n")
	if _, _, err := n.a.store.Put(strings.NewReader(`{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"uid": "ghost", "name": "ghost", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}]}`), false); err != nil {
		t.Fatal(err)
	}
	n.a.known(n.a.store.Snapshot())
	n.available(90)
	now := time.Now()
	n.a.look(t.Context(), now)
	if n.a.manager.Ready(now).Look == eviction.LookMemory || len(n.a.manager.SetAside(now)) != 1 {
		t.Errorf("set aside %v\n%s", n.a.manager.SetAside(now), n.log)
	}
}

// A pod that the runtime never tells of makes kills wait for its answer a few times only.
func TestAStrangerHoldsUpKillsAFewTimesOnly(t *testing.T) {
	n := newTestNode(t)
	if err := n.a.lookAtPods(time.Now(), memoryLook); err != nil || !n.a.strangers() {
		t.Fatalf("strangers %v, %v", n.a.strangers(), err)
	}
	for range asks {
		n.a.keepUp(time.Now())
	}
	if n.a.strangers() {
		t.Error("the runtime is waited for all the same")
	}
}

// softNode is a node on which the pod is being stopped gently, and takes its time.
func softNode(t *testing.T, ctx context.Context) (*testNode, *underway) {
	t.Helper()
	n := newTestNode(t)
	n.a = newAgent(Options{Log: n.a.log, Config: configOf(t, softAndHard)}, n.a.Sources)
	n.runs()
	n.runtime.Change(func() { n.runtime.Hang = map[string]bool{"StopContainer": true} })
	n.available(150)
	now := time.Now()
	n.a.look(ctx, now)
	n.a.look(ctx, now.Add(10*time.Second))
	u := n.a.underway[uid]
	if u == nil || !u.Killed().Time.IsZero() {
		t.Fatalf("under way %+v\n%s", u, n.log)
	}
	return n, u
}

// Told to stop while a pod has its grace period, the agent leaves it that: to clean up would kill it at once.
func TestAStopKillsNobodyInItsGracePeriod(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n, _ := softNode(t, ctx)
	cancel()
	n.a.evictions.Wait()
	if calls := n.runtime.Calls("StopPodSandbox"); calls != 0 {
		t.Errorf("%d calls of StopPodSandbox\n%s", calls, n.log)
	}
}

// A pod that is being stopped for memory and has to go at once for a disk leaves nothing there.
func TestAPodThatIsHastenedForADiskLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n, u := softNode(t, ctx)
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.kill", "")
	d := n.diskVictim()
	if len(d.Evictions) == 0 || u.remove.Load() || !n.a.hasten(u, &d, 0) || !u.remove.Load() {
		t.Errorf("%v, removes %v\n%s", d.Reason, u.remove.Load(), n.log)
	}
	cancel()
	n.a.evictions.Wait()
}

// A victim that dies after it was set aside is an eviction like any other.
func TestALateDeathIsReported(t *testing.T) {
	n := newTestNode(t)
	now := time.Now()
	u := n.written(90, now)
	n.a.happened(now, event{u, emptied, os.ErrDeadlineExceeded})
	n.available(500)
	n.a.measure(now)
	n.a.progress(now)
	if len(n.a.history) != 0 || u.Outcome() != eviction.OutcomeUndying {
		t.Fatalf("history %v", n.a.history)
	}
	n.a.happened(now, event{u, emptied, nil})
	n.a.happened(now, event{u, cleaned, nil})
	n.a.measure(now)
	n.a.progress(now)
	if s := n.a.state(now); len(s.Evicted) != 1 || len(s.SetAside) != 0 || len(s.Underway) != 0 {
		t.Errorf("state %+v\n%s", s, n.log)
	}
}

// diskVictim is what is decided while the pods' disk is full.
func (n *testNode) diskVictim() eviction.Decision {
	n.t.Helper()
	if err := n.a.lookAtPods(time.Now(), memoryLook); err != nil {
		n.t.Fatal(err)
	}
	s := stats.Summary{Node: n.a.node, Pods: n.a.summary.Pods}
	s.Node.Fs = stats.Some(stats.FsStats{Time: time.Now(), AvailableBytes: stats.Some(uint64(1)), CapacityBytes: stats.Some(uint64(1 << 40))})
	s.Node.Layout = stats.Some(stats.Layout{})
	m := eviction.NewManager(eviction.Config{Thresholds: configOf(n.t, "evictionHard: {nodefs.available: 10%}\n").Thresholds})
	in := eviction.Input{Summary: &s}
	d := m.Step(time.Now(), in)
	if len(d.Reclaim) > 0 {
		d = m.Reclaimed(time.Now(), in)
	}
	if len(d.Evictions) == 0 {
		n.t.Fatalf("no victim: %s", d.Reason)
	}
	return d
}

// A kubelet that came since the last search saves the pods that were to go for a disk; with disk: act they go, but their files are its.
func TestAKubeletIsLookedForBeforeADiskVictimDies(t *testing.T) {
	n := newTestNode(t)
	n.a.o.ProcMount = filepath.Join(n.dir, "proc")
	for _, name := range []string{"comm", "cgroup", "net/tcp", "net/tcp6"} {
		n.write("proc/1/"+name, "header\n")
	}
	d := n.diskVictim()
	if n.a.spare(&d); len(d.Evictions) != 1 || n.a.kubelet {
		t.Fatalf("without a kubelet: %+v\n%s", d.Evictions, n.log)
	}
	n.write("proc/812/comm", "kubelet\n")
	n.write("proc/812/cgroup", "0::/system.slice/kubelet.service\n")
	for _, act := range []bool{true, false} {
		if n.a.kubelet, n.a.o.Config.Disk = false, ""; act {
			n.a.o.Config.Disk = "act"
		}
		if n.a.spare(&d); (len(d.Evictions) == 1) != act || !n.a.kubelet {
			t.Errorf("act %v: %+v\n%s", act, d.Evictions, n.log)
		}
	}
	// The search beside the loop, at most one at a time.
	n.a.kubelet, n.a.looked = false, time.Time{}
	n.a.searchKubelet(time.Now())
	n.a.searchKubelet(time.Now())
	if n.a.searched(<-n.a.search); !n.a.kubelet {
		t.Error("not found beside the loop")
	}
	n.a.evictions.Wait()
}

// While the breaker holds back evictions, its reason, which says how much something has grown, is not logged at each look.
func TestWhatTheBreakerSaysIsNotRepeated(t *testing.T) {
	n := newTestNode(t)
	d := n.victim(90, time.Now())
	d.Stopped = true
	for _, d.Reason = range []string{"x grows instead, by 1", "x grows instead, by 2"} {
		n.a.nobody(&d)
	}
	if lines := strings.Count(n.log.String(), "no eviction"); lines != 1 {
		t.Errorf("%d lines:\n%s", lines, n.log)
	}
}

// A signal that is not observed for long, whatever the cause, is said to be lost once, and to be back once.
func TestALostSignalIsLoggedOnce(t *testing.T) {
	n := newTestNode(t)
	n.a.o.Config = configOf(t, "evictionHard: {memory.available: 100Mi, nodefs.available: 10%}\n")
	n.a = newAgent(n.a.o, n.a.Sources)
	now := time.Now()
	n.a.node.Fs = stats.Opt[stats.FsStats]{}
	for i := range 20 {
		at := now.Add(time.Duration(i) * time.Second)
		n.a.measure(at)
		n.a.blindFor(at)
	}
	if strings.Count(n.log.String(), "signal is not observed") != 1 || len(n.a.state(now).Errors) != 1 {
		t.Errorf("log: %s", n.log)
	}
	now = now.Add(time.Minute)
	n.a.node.Fs = stats.Some(stats.FsStats{Time: now, AvailableBytes: stats.Some(uint64(1 << 30)), CapacityBytes: stats.Some(uint64(1 << 30))})
	for range 2 {
		n.a.measure(now)
		n.a.blindFor(now)
	}
	if strings.Count(n.log.String(), "observed again") != 1 || len(n.a.blind) != 0 {
		t.Errorf("log: %s", n.log)
	}
}

// A pod that came back under its UID while its victim was being cleaned up keeps its volumes.
func TestWhatIsBackKeepsItsVolumes(t *testing.T) {
	n := newTestNode(t)
	var err error
	if n.a.host, err = read.OpenHostRoot(n.dir); err != nil {
		t.Fatal(err)
	}
	defer n.a.host.Close()
	n.a.o.ProcMount = "/proc"
	volume := n.a.o.Config.RootDir + "/pods/" + uid + "/volumes/kubernetes.io~empty-dir/v/data"
	for _, back := range []bool{true, false} {
		n.write(volume, "x")
		n.runs()
		victim, err := kill.Pin(n.a.FS, &stats.PodStats{PodRef: stats.PodReference{UID: uid, Name: "pod", Namespace: "default"}, SandboxIDs: []string{"s"}})
		if err != nil {
			t.Fatal(err)
		}
		if back {
			n.runtime.Change(func() {
				n.runtime.Sandboxes = append(n.runtime.Sandboxes, &runtimev1.PodSandbox{Id: "s2", Metadata: &runtimev1.PodSandboxMetadata{Uid: uid}, CreatedAt: time.Now().UnixNano()})
			})
		}
		n.a.removeFiles(t.Context(), victim)
		victim.Close()
		if _, err := os.Stat(filepath.Join(n.dir, volume)); (err == nil) != back {
			t.Errorf("back %v: %v\n%s", back, err, n.log)
		}
	}
}

// A dead pod's /dev/shm is unmounted before the runtime is asked for anything, and again once all its sandboxes are known. Here it
// cannot be: it is said.
func TestSharedMemoryIsGivenBack(t *testing.T) {
	n := newTestNode(t)
	var err error
	if n.a.host, err = read.OpenHostRoot(n.dir); err != nil {
		t.Fatal(err)
	}
	defer n.a.host.Close()
	n.a.o.ProcMount = filepath.Join(n.dir, "proc")
	pinned, found := strings.Repeat("a", 64), strings.Repeat("b", 64)
	n.write("proc/1/mountinfo", "36 1 0:90 / /run/"+pinned+"/shm rw - tmpfs shm rw\n37 1 0:91 / /run/"+found+"/shm rw - tmpfs shm rw\n")
	n.runtime.Sandboxes = []*runtimev1.PodSandbox{{Id: found, Metadata: &runtimev1.PodSandboxMetadata{Uid: uid}, CreatedAt: 1}}
	group := "kubepods/besteffort/pod" + uid
	n.write("cgroup/"+group+"/cgroup.kill", "")
	n.write("cgroup/"+group+"/cgroup.events", "populated 0\nfrozen 0\n")
	victim, err := kill.Pin(n.a.FS, &stats.PodStats{PodRef: stats.PodReference{UID: uid}, Cgroup: group, SandboxIDs: []string{pinned}})
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.a.carryOut(t.Context(), &underway{victim: victim, cancel: func() {}}, way{urgent: true, cgroup: true})
	}()
	for _, want := range []stage{emptied, cleaned} {
		if e := <-n.a.events; e.stage != want {
			t.Errorf("stage %v, %v; want %v", e.stage, e.err, want)
		}
	}
	<-done
	if got := []int{strings.Count(n.log.String(), "/run/"+pinned+"/shm"), strings.Count(n.log.String(), "/run/"+found+"/shm")}; got[0] != 2 || got[1] != 1 {
		t.Errorf("%v: %s", got, n.log)
	}
}

// Tasks are counted in the quick look itself: their victim is chosen at once, though nothing more was read of it.
func TestAForkBombIsEvictedByAQuickLook(t *testing.T) {
	n := newTestNode(t)
	n.a = newAgent(Options{Log: n.a.log, Config: configOf(t, `evictionHard: {pid.available: "25%"}`)}, n.a.Sources)
	pod := "cgroup/kubepods/besteffort/pod" + uid + "/"
	n.write(pod+"cgroup.kill", "")
	n.write(pod+"pids.current", "900\n")
	n.write("proc/sys/kernel/pid_max", "1000\n")
	n.write("proc/sys/kernel/threads-max", "5000\n")
	n.write("proc/loadavg", "1.00 1.00 1.00 1/950 4242\n")
	n.available(500)
	ctx, cancel := context.WithCancel(t.Context())
	n.a.look(ctx, time.Now())
	if u := n.a.underway[uid]; u == nil || u.Eviction().Signal != stats.SignalPIDAvailable || u.Killed().Time.IsZero() {
		t.Errorf("under way %v\n%s", n.a.underway, n.log)
	}
	cancel()
	n.a.evictions.Wait()
}
