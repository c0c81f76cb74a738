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

// Pod objects from a client neither save the pod that leaks nor cost another its life. The false
// objects: the leaker has ended, is static, is within its request; another pod's object under an
// innocent pod's UID; an object without priority for a protected pod. The client sends all of them
// before the leaker runs. A limit of a pod's own object applies all the time.
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
		t.Errorf("answer to the false pod objects = %+v, %v", answer, err)
	}
	if before == nil || before.Unprotected != 1 {
		t.Errorf("pods of unknown priority = %+v, want a count", before)
	}
	n.until("the objects are counted", func() error { // a state may be a second old
		if p := n.state().Pods; p.RefusedObjects != 1 || p.Clients != 2 || *p.UnknownPriority != *before {
			return fmt.Errorf("pods %+v, of unknown priority %+v, before %+v", p, *p.UnknownPriority, *before)
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
	n.expectMemoryAvailable()
	if line := n.agentLogs("evicted", 2); line.Fields["signal"] != "memory.available" || line.Fields["uid"] != string(victim.Object.UID) {
		t.Errorf("agent logged %v, want the eviction of %s for memory.available", line.Fields, victim)
	}
	if line := n.agentLogs("pod object rejected, runtime has another pod", 1); line.Fields["object"] != "default/other" {
		t.Errorf("agent logged an unexpected line: %v", line.Fields)
	}

	truth := innocent.Object.DeepCopy()
	truth.Spec.Priority = new(int32(0))
	before = n.state().Pods.UnknownPriority
	if answer, err := n.API().PutPods(n.ctx, []*v1.Pod{truth}); err != nil || len(answer.Refused) != 0 {
		t.Errorf("answer to the pod object = %+v, %v", answer, err)
	}
	n.until("the innocent's priority is known", func() error {
		if now := n.state().Pods.UnknownPriority; now.Unprotected != before.Unprotected-1 {
			return fmt.Errorf("pods of unknown priority = %+v, before %+v", *now, *before)
		}
		return nil
	})
}

// A file system with a server that never answers blocks every statfs until it is released.
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
	waits := func() error { // the process is blocked in the system call
		stack := n.shell(fmt.Sprintf("cat /proc/%d/wchan /proc/%[1]d/cmdline", pid))
		if !strings.Contains(stack, "fuse") && !strings.Contains(stack, "request_wait") {
			return fmt.Errorf("kernel stack of the process = %q, want it in statfs", stack)
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
			return fmt.Errorf("the process still runs (%v)", err)
		}
		return nil
	})
}

// A file system with project quotas counts and limits the bytes that a project writes.
func TestProjectQuotasWork(t *testing.T) {
	n := startNode(t)
	if err := n.MountProjectQuota(n.ctx, "/mnt/quota"); err != nil {
		t.Fatal(err)
	}
	if mount := n.shell("grep /mnt/quota /proc/mounts"); !strings.Contains(mount, "prjquota") {
		t.Errorf("file system mounted as %s, want project quotas", mount)
	}
	for pkg, tests := range map[string]string{"./e2e/guest": "^TestLiveProjectQuota", "./stats/read/disk": "^TestQuota"} {
		out, err := n.RunTests(n.ctx, pkg, "-test.run="+tests, "-test.v")
		if err != nil || !strings.Contains(out, "--- PASS") || strings.Contains(out, "SKIP") {
			t.Errorf("tests of %s in the guest: %v\n%s", pkg, err, out)
		}
	}
}

// A runtime that hangs accepts calls and answers none. It continues when resumed.
func TestAHungRuntimeHangs(t *testing.T) {
	n := startNode(t)
	if err := n.HangRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.ctx, 3*time.Second)
	defer cancel()
	if err := n.NetworkReady(ctx); ctx.Err() == nil {
		t.Errorf("call of the hanging runtime = %v, want no answer", err)
	}
	if err := n.ResumeRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.NetworkReady(n.ctx); err != nil {
		t.Error(err)
	}
}
