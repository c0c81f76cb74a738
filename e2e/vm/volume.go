package vm

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dir is where a kubelet keeps a pod's things (pkg/kubelet/kubelet_getters.go).
func (p *Pod) dir() string { return "/var/lib/kubelet/pods/" + string(p.Object.UID) }

// EmptyDir is where the guest keeps an emptyDir of the pod.
func (p *Pod) EmptyDir(volume string) string {
	return p.dir() + "/volumes/kubernetes.io~empty-dir/" + volume
}

// makeVolumes makes the pod's emptyDirs as a kubelet does (pkg/volume/emptydir): a folder that everyone may write to, with a
// tmpfs mounted there for the medium Memory.
func (p *Pod) makeVolumes(ctx context.Context) error {
	for _, v := range p.Object.Spec.Volumes {
		if v.EmptyDir == nil {
			continue
		}
		dir := p.EmptyDir(v.Name)
		line := "mkdir -p " + dir
		if v.EmptyDir.Medium == v1.StorageMediumMemory {
			options := "mode=0777"
			if limit := v.EmptyDir.SizeLimit; limit != nil && !limit.IsZero() {
				options += fmt.Sprintf(",size=%d", limit.Value())
			}
			line += " && mount -t tmpfs -o " + options + " tmpfs " + dir
		}
		if _, err := p.node.Shell(ctx, line+" && chmod 0777 "+dir); err != nil {
			return err
		}
	}
	return nil
}

// removeVolumes removes what the pod leaves on the node. What is still mounted below its folder, and only that, is unmounted.
func (p *Pod) removeVolumes(ctx context.Context) error {
	line := "while read -r _ dir _; do case $dir in " + p.dir() + "/*) umount $dir || exit;; esac; done < /proc/mounts; rm -rf " + p.dir()
	_, err := p.node.Shell(ctx, line)
	return err
}

// mounts are the container's volumes as far as they are hostPaths or emptyDirs.
func (p *Pod) mounts(c v1.Container) []*cri.Mount {
	var out []*cri.Mount
	for _, m := range c.VolumeMounts {
		for _, v := range p.Object.Spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			mount := &cri.Mount{ContainerPath: m.MountPath, Readonly: m.ReadOnly}
			switch {
			case v.HostPath != nil:
				mount.HostPath = v.HostPath.Path
			case v.EmptyDir != nil:
				mount.HostPath = p.EmptyDir(v.Name)
			default:
				continue
			}
			if m.MountPropagation != nil && *m.MountPropagation == v1.MountPropagationHostToContainer {
				mount.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
			}
			out = append(out, mount)
		}
	}
	return out
}
