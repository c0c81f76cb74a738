package limits

import (
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read"
	"jettison/stats/read/podindex"
)

// Limits of a pass: a tenant with a delegated cgroup controls the number of cgroups below it.
const (
	maxPods       = 4096
	maxContainers = 256 // of one pod
)

// Known is the data about pods.
type Known struct {
	Objects []*v1.Pod // of clients and manifests
	// UIDs of the objects that only members of the socket's group provided, which are not used
	Members  map[string]bool
	Runtime  read.Index
	Capacity stats.Opt[uint64] // memory of the node, in bytes
	// cgroup of this process, handled by package selfprotect; empty: in no pod
	Self string
}

// gather finds the cgroups of pods below a kubelet's cgroupRoot, with their requests. paths are all
// cgroups that may have been written: those above pods, pods, and their direct children. If not all
// could be listed, it returns an error with the ones found.
func gather(fs *cgroup.FS, cgroupRoot string, k Known) (pods []Pod, paths []string, err error) {
	objects := make(map[string]*v1.Pod, len(k.Objects))
	for _, o := range k.Objects {
		objects[string(o.UID)] = o
	}
	seen, buf := map[string]bool{}, make([]byte, 16<<10)
	maxOf := func(path string) stats.Opt[cgroup.Limit] { return memoryMax(fs, path) }
	for _, root := range podindex.PodRoots(cgroupRoot) {
		for _, path := range append(above(root), root) {
			if !seen[path] {
				seen[path] = true
				paths = append(paths, path)
			}
		}
		var found []stats.PodCgroup
		listErr := fs.ChildrenUntil(root, buf, func(name string) bool {
			if p, ok := stats.ParsePodCgroup(root, name); ok && p.QOSClass != "" && !within(k.Self, p.Path) {
				p.Path, p.UID = strings.Clone(p.Path), strings.Clone(p.UID)
				found = append(found, p)
			}
			return len(found) < maxPods
		})
		if listErr != nil {
			err = listErr
		}
		for _, p := range found {
			below, listErr := children(fs, p.Path, buf)
			if listErr != nil {
				err = listErr
			}
			paths = append(append(paths, p.Path), below...)
			pods = append(pods, k.pod(p, objects[p.UID], below, maxOf))
		}
	}
	return pods, paths, err
}

// children returns the paths of the direct children of a cgroup.
func children(fs *cgroup.FS, path string, buf []byte) (out []string, err error) {
	err = fs.ChildrenUntil(path, buf, func(name string) bool {
		out = append(out, path+"/"+name)
		return len(out) < maxContainers
	})
	return out, err
}

// memory returns the memory of a list, in bytes, between 0 and the maximum int64.
func memory(list v1.ResourceList) uint64 {
	q := list[v1.ResourceMemory]
	if q.Cmp(*resource.NewQuantity(math.MaxInt64, resource.DecimalSI)) > 0 {
		return math.MaxInt64
	}
	return uint64(max(q.Value(), 0))
}

// isOf reports whether a cgroup belongs to a container. Runtimes name it by its ID, for example
// cri-containerd-ID.scope. CRI-O's monitor of a container, crio-conmon-ID.scope, does not match.
func isOf(path, id string) bool {
	name := strings.TrimSuffix(path[strings.LastIndexByte(path, '/')+1:], ".scope")
	prefix, ok := strings.CutSuffix(name, id)
	return id != "" && ok && (prefix == "" || strings.HasSuffix(prefix, "-") &&
		!strings.HasSuffix(prefix, "-conmon-"))
}

// resourcesOf returns the resources of a container in a pod object; nil: no container has that
// name.
func resourcesOf(p *v1.Pod, name string) *v1.ResourceRequirements {
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i].Resources
			}
		}
	}
	return nil
}
