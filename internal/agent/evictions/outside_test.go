package evictions

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/internal/node/nodetest"
	"jettison/stats/read"
)

// outside moves the pod's container out of the pod's cgroup, as with different cgroup drivers, and
// lists the pods.
func (f *fixture) outside() (at string) {
	f.t.Helper()
	id := strings.Repeat("ab", 32)
	at = "system.slice/containerd.service/" + id
	f.Populated(nodetest.Pod, false)
	f.AddPod(at, 300)
	f.Write("cgroup/"+at+"/cgroup.kill", "")
	f.Write("proc/stat", "cpu0 1\nbtime 1\n")
	f.Write("proc/4000100/cgroup", "0::/"+at+"\n")
	f.Runs()
	f.Runtime.Change(func() {
		f.Runtime.Containers[0].Id = id
		f.Runtime.Info[id] = `{"pid":4000100}`
		f.Runtime.ContainerStatuses = map[string]*runtimev1.ContainerStatus{id: {Id: id,
			Metadata: f.Runtime.Containers[0].Metadata, State: f.Runtime.Containers[0].State}}
	})
	listing, err := cri.NewLister(f.Client).List(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	f.pods = read.NewIndex(listing)
	read.NewOutsideFinder(f.Proc(), "", f.Client.PeerPID).Find(f.pods)
	return at
}

// A pod whose container runs outside its cgroup is a candidate, is killed there, and is dead only when
// that container is.
func TestPodOutsideItsCgroupIsEvicted(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	at := f.outside()
	f.Write("cgroup/"+nodetest.Pod+"/cgroup.kill", "")
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, time.Now(), 90)
	if life == nil {
		t.Fatalf("no eviction began at 90 MiB, want one of the pod\n%s", f.Text())
	}
	if got, _ := os.ReadFile(filepath.Join(f.Dir, "cgroup", at, "cgroup.kill")); string(got) != "1" {
		t.Errorf("cgroup.kill of the container = %q, want 1", got)
	}
	p := life.Eviction().Pod
	if p.Memory.UsageBytes.V < 300<<20 || len(p.Outside) != 1 || life.Killed().Time.IsZero() {
		t.Errorf("victim = %+v, killed %v, want 300 MiB and one container outside", p, life.Killed())
	}
	select {
	case e := <-f.Events():
		t.Errorf("reported stage %v, error %v while the container lives", e.stage, e.err)
	case <-time.After(100 * time.Millisecond):
	}
	f.Populated(at, false)
	if e := f.take(); e.stage != emptied || e.err != nil {
		t.Errorf("report of the end: stage %v, error %v", e.stage, e.err)
	}
	f.end(cancel)
}

// An agent killed during an eviction finds the container again: the pod keeps the rest of its grace
// period.
func TestResumedOutsideItsCgroup(t *testing.T) {
	f, before, dir := crashed(t)
	at := f.outside()
	ctx, cancel := context.WithCancel(t.Context())
	if n := f.resume(ctx, before.Began().Time.Add(time.Second), dir); n != 1 {
		t.Fatalf("%d evictions continue, want 1\n%s", n, f.Text())
	}
	select {
	case e := <-f.Events():
		t.Errorf("reported stage %v, error %v while the container lives", e.stage, e.err)
	case <-time.After(100 * time.Millisecond):
	}
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	f.Populated(at, false)
	if e := f.take(); e.stage != emptied || e.err != nil {
		t.Errorf("report of the end: stage %v, error %v", e.stage, e.err)
	}
	f.crash(cancel)
}

// If all containers outside have ended before the pin, the kernel reports no end of the pod: only the
// runtime's answer counts, also while other containers of the pod run.
func TestNothingIsPinnedOutside(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	at := f.outside()
	if err := os.RemoveAll(filepath.Join(f.Dir, "cgroup", nodetest.Pod)); err != nil {
		t.Fatal(err)
	}
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopContainer": true} })
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	d := f.decide(now, 90)
	if len(d.Evictions) != 1 || d.Evictions[0].Pod.Cgroup != "" || len(d.Evictions[0].Pod.Outside) != 1 {
		t.Fatalf("decision = %+v, want an eviction of the pod without a cgroup", d.Evictions)
	}
	if err := os.RemoveAll(filepath.Join(f.Dir, "cgroup", at)); err != nil {
		t.Fatal(err)
	}
	if !f.OnDecided(ctx, &d) {
		t.Fatalf("no eviction began, want one of the pod\n%s", f.Text())
	}
	if u := f.inProgress[f.m.Life(nodetest.UID)]; u.cgroup || u.killErr == nil {
		t.Errorf("kernel reports the end: %v, error of the kill: %v, want false and an error", u.cgroup, u.killErr)
	}
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	f.end(cancel)
}
