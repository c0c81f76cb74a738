package e2e

import (
	"fmt"
	"strings"
	"testing"

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

// A pod's emptyDirs lie where a kubelet puts them, on disk or in a tmpfs of its own, and are gone after it.
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
				err = fmt.Errorf("it holds %s bytes", out)
			}
			return err
		})
	}
	mount := n.shell("grep " + pod.EmptyDir("") + " /proc/mounts")
	if strings.Count(mount, "\n") != 1 || !strings.Contains(mount, "/memory tmpfs ") || !strings.Contains(mount, "size=16384k") {
		t.Errorf("want one tmpfs of 16 MiB:\n%s", mount)
	}
	if err := pod.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	if left := n.shell("ls /var/lib/kubelet/pods; grep -c kubernetes.io /proc/mounts || true"); strings.TrimSpace(left) != "0" {
		t.Errorf("left after the pod:\n%s", left)
	}
}
