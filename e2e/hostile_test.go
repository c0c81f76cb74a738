package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"jettison/e2e/vm"
)

// What a client says of pods neither saves the one that leaks, nor costs another its life: not that the leaker is over, static and within
// its request, not another pod's object under an innocent one's UID, not an object without priority for a protected pod. All of it is put
// on the socket before the leaker runs. A limit of a pod's own object acts all the while.
func TestPromiseAClientsLieChangesNoVictim(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(""))
	innocent := n.holding(withEmptyDir(vm.NewPod("innocent", "64Mi", "", "fill -size 8Mi /data/file + alloc -size 100Mi"), "data",
		v1.EmptyDirVolumeSource{}), 100*mib)
	object := vm.NewPod("system", "", "", "alloc -size 120Mi")
	object.Namespace = "kube-system"
	system := n.holding(object, 120*mib)
	leaks := leaker()
	leaks.UID = types.UID(uuid.NewString())

	lent, over, bare := innocent.Object.DeepCopy(), leaks.DeepCopy(), system.Object.DeepCopy()
	lent.Name, lent.Spec.Priority = "other", new(int32(-1000))
	lent.Spec.Volumes[0].EmptyDir.SizeLimit = new(resource.MustParse("1Mi"))
	over.Annotations["kubernetes.io/config.source"] = "file"
	over.Status.Phase, over.Status.Reason, over.Spec.Priority = v1.PodFailed, "Evicted", new(int32(0))
	over.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Gi")}
	before := n.state().Pods.UnknownPriority
	answer, err := n.API().PutPods(n.ctx, []*v1.Pod{lent, over, bare})
	if err != nil || len(answer.Refused) != 1 || answer.Refused[0].Object.Name != "other" || answer.Refused[0].Runtime.Name != "innocent" {
		t.Errorf("the agent answers %+v, %v", answer, err)
	}
	if before == nil || before.Unprotected != 1 {
		t.Errorf("of unknown priority: %+v", before)
	}
	n.until("the objects are counted", func() error { // a State may be a second old
		if p := n.state().Pods; p.RefusedObjects != 1 || p.Clients != 2 || *p.UnknownPriority != *before {
			return fmt.Errorf("%+v, of unknown priority %+v, before %+v", p, *p.UnknownPriority, *before)
		}
		return nil
	})

	limit := resource.MustParse("16Mi")
	full := vm.NewPod("full", "", "", "fill -rate 8Mi -size 32Mi /data/file")
	full.Spec.Priority = new(int32(0))
	offender := n.run(withEmptyDir(full, "data", v1.EmptyDirVolumeSource{SizeLimit: &limit}))
	n.putPods(offender)
	n.dies(offender)
	n.evictedFor("emptydirfs.limit", offender)

	n.fillTo(110 * mib)
	victim := n.run(leaks)
	n.dies(victim)
	n.memoryIsBack()
	if line := n.agentSays("evicted", 2); line.Fields["signal"] != "memory.available" || line.Fields["uid"] != string(victim.Object.UID) {
		t.Errorf("the agent says %v, want the eviction of %s for memory.available", line.Fields, victim)
	}
	if line := n.agentSays("pod object rejected, runtime has another pod", 1); line.Fields["object"] != "default/other" {
		t.Errorf("the agent says %v", line.Fields)
	}

	truth := innocent.Object.DeepCopy()
	truth.Spec.Priority = new(int32(0))
	before = n.state().Pods.UnknownPriority
	if answer, err := n.API().PutPods(n.ctx, []*v1.Pod{truth}); err != nil || len(answer.Refused) != 0 {
		t.Errorf("the agent answers %+v, %v", answer, err)
	}
	n.until("the innocent's priority is known", func() error {
		if now := n.state().Pods.UnknownPriority; now.Unprotected != before.Unprotected-1 {
			return fmt.Errorf("%+v, before %+v", *now, *before)
		}
		return nil
	})
}

// A file system whose server never answers holds up whoever asks for its statfs, until it is released.
func TestAHungMountHangs(t *testing.T) {
	n := startNode(t)
	release, err := n.HangMount(n.ctx, "/mnt/hung")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := n.Start(n.ctx, "/tmp/df", "/bin/busybox", "df", "/mnt/hung")
	if err != nil {
		t.Fatal(err)
	}
	waits := func() error { // it makes the system call, and stays there
		stack := n.shell(fmt.Sprintf("cat /proc/%d/wchan /proc/%[1]d/cmdline", pid))
		if !strings.Contains(stack, "fuse") && !strings.Contains(stack, "request_wait") {
			return fmt.Errorf("it is in %q", stack)
		}
		return nil
	}
	n.until("df waits for the file system's server", waits)
	time.Sleep(2 * time.Second)
	if err := waits(); err != nil {
		t.Error(err)
	}
	if err := release(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.until("df is over", func() error {
		if res, err := n.Exec(n.ctx, "/bin/kill", "-0", fmt.Sprint(pid)); err != nil || res.Code == 0 {
			return fmt.Errorf("it still runs (%v)", err)
		}
		return nil
	})
}

// A file system with project quotas counts and limits what a project writes.
func TestProjectQuotasWork(t *testing.T) {
	n := startNode(t)
	if err := n.MountProjectQuota(n.ctx, "/mnt/quota"); err != nil {
		t.Fatal(err)
	}
	if mount := n.shell("grep /mnt/quota /proc/mounts"); !strings.Contains(mount, "prjquota") {
		t.Errorf("mounted as %s", mount)
	}
	for pkg, tests := range map[string]string{"./e2e/guest": "^TestLiveProjectQuota", "./stats/read/disk": "^TestQuota"} {
		out, err := n.RunTests(n.ctx, pkg, "-test.run="+tests, "-test.v")
		if err != nil || !strings.Contains(out, "--- PASS") || strings.Contains(out, "SKIP") {
			t.Errorf("%s: %v\n%s", pkg, err, out)
		}
	}
}

// A runtime that hangs takes calls and answers none; it goes on where it was.
func TestAHungRuntimeHangs(t *testing.T) {
	n := startNode(t)
	if err := n.HangRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.ctx, 3*time.Second)
	defer cancel()
	if err := n.NetworkReady(ctx); ctx.Err() == nil {
		t.Errorf("it answers: %v", err)
	}
	if err := n.ResumeRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.NetworkReady(n.ctx); err != nil {
		t.Error(err)
	}
}
