package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/e2e/vm"
)

// withEmptyDir mounts an emptyDir into a pod's first container, at /NAME.
func withEmptyDir(pod *v1.Pod, name string, source v1.EmptyDirVolumeSource) *v1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &source}})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	return pod
}

// A pod's emptyDirs are where a kubelet puts them, on disk or in a separate tmpfs, and are removed
// with it.
func TestPodsHaveEmptyDirs(t *testing.T) {
	n := startNode(t)
	limit := resource.MustParse("16Mi")
	object := vm.NewPod("writer", "", "", "fill -size 8Mi /disk/file + fill -size 4Mi /memory/file")
	object = withEmptyDir(object, "disk", v1.EmptyDirVolumeSource{})
	object = withEmptyDir(object, "memory", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit})
	pod := n.run(object)
	for name, size := range map[string]int{"disk": 8 * mib, "memory": 4 * mib} {
		n.until(name+" is filled", func() error {
			out, err := n.Shell(n.ctx, "wc -c < "+pod.EmptyDir(name)+"/file")
			if err == nil && strings.TrimSpace(out) != fmt.Sprint(size) {
				err = fmt.Errorf("the volume has %s bytes", out)
			}
			return err
		})
	}
	mount := n.shell("grep " + pod.EmptyDir("") + " /proc/mounts")
	if strings.Count(mount, "\n") != 1 || !strings.Contains(mount, "/memory tmpfs ") || !strings.Contains(mount, "size=16384k") {
		t.Errorf("mounts of the pod: want one tmpfs of 16 MiB:\n%s", mount)
	}
	if err := pod.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	if left := n.shell("ls /var/lib/kubelet/pods; grep -c kubernetes.io /proc/mounts || true"); strings.TrimSpace(left) != "0" {
		t.Errorf("leftovers of the pod:\n%s", left)
	}
}

// With a kubelet running, the kubelet unmounts a volume in memory. Until then its owner is dead and
// its data still uses memory. The agent waits and evicts no other pod for that.
func TestAVolumeInMemoryBesideAKubeletIsAwaited(t *testing.T) {
	n := startNode(t)
	n.shell("cp /usr/local/bin/workload /run/kubelet")
	if _, err := n.Start(n.ctx, "/var/log/kubelet.log", "/run/kubelet", "sleep", "--container-runtime-endpoint=unix://"+n.Runtime.Socket); err != nil {
		t.Fatal(err)
	}
	n.startAgent("")
	var innocent []*vm.Pod
	for i := range 4 {
		innocent = append(innocent, n.holding(vm.NewPod(fmt.Sprintf("innocent-%d", i), "", "", "alloc -size 8Mi"), 8*mib))
	}
	n.fillTo(120 * mib)
	object := vm.NewPod("files", "", "", "fill -rate 40Mi -size 160Mi /memory/file")
	files := n.run(withEmptyDir(object, "memory", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}))
	files.Expected = vm.Dies
	n.until("the owner of the volume is dead", func() error {
		if n.deadOf([]*vm.Pod{files}) == 0 {
			return errors.New("the pod still lives")
		}
		return nil
	})
	began := time.Now()
	if _, err := n.Start(n.ctx, "/var/log/meanwhile.log", "/usr/local/bin/workload", "alloc", "-size", "30Mi"); err != nil { // memory is still short
		t.Fatal(err)
	}
	short := false
	for time.Since(began) < 6*time.Second { // the agent waits for it for 15 s
		if dead := n.deadOf(innocent); dead > 0 {
			t.Fatalf("%d innocent pods died within %v after the owner of the volume", dead, time.Since(began))
		}
		m, err := n.Memory(n.ctx)
		short = short || err == nil && m.Available() < defaultThreshold
		time.Sleep(100 * time.Millisecond)
	}
	if !short {
		t.Error("memory was not short before the volume was unmounted: the agent did not wait for it")
	}
	if err := files.Remove(n.ctx); err != nil { // as a kubelet does
		t.Fatal(err)
	}
	n.until("memory is back", func() error {
		m, err := n.Memory(n.ctx)
		if err == nil && m.Available() < defaultThreshold {
			err = fmt.Errorf("only %d MiB available", m.Available()/mib)
		}
		return err
	})
	n.evictedFor("memory.available", files)
	if dead := n.deadOf(innocent); dead > 0 {
		t.Errorf("%d innocent pods are dead, want none", dead)
	}
}
