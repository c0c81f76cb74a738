package vm

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dir returns the kubelet's folder of the pod (pkg/kubelet/kubelet_getters.go).
func (p *Pod) dir() string { return "/var/lib/kubelet/pods/" + string(p.Object.UID) }

// EmptyDir returns the guest's path of an emptyDir of the pod.
func (p *Pod) EmptyDir(volume string) string {
	return p.dir() + "/volumes/kubernetes.io~empty-dir/" + volume
}

// makeVolumes makes the pod's emptyDirs as a kubelet does (pkg/volume/emptydir): a world-writable
// folder, with a tmpfs mounted on it for the medium Memory.
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

// removeVolumes removes the pod's leftovers from the node. It unmounts only mounts below the pod's
// folder.
func (p *Pod) removeVolumes(ctx context.Context) error {
	line := "while read -r _ dir _; do case $dir in " + p.dir() + "/*) umount $dir || exit;; esac; done < /proc/mounts; rm -rf " + p.dir()
	_, err := p.node.Shell(ctx, line)
	return err
}

// mounts returns the container's volumes that are hostPaths or emptyDirs.
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
