package limits

import (
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/admit"
	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read"
	"jettison/stats/read/podindex"
)

// Bounds of what is looked at: a tenant with a delegated cgroup decides how many are below it.
const (
	maxPods       = 4096
	maxContainers = 256 // of one pod
)

// Known is what is told of pods.
type Known struct {
	Objects  []*v1.Pod // of clients and manifests
	Runtime  read.Index
	Capacity stats.Opt[uint64] // memory of the node, in bytes
	// cgroup of this process, which package protect looks after; empty: it is in no pod
	Self string
}

// gather finds the cgroups of pods below a kubelet's cgroupRoot, with what is told of them. paths
// are all cgroups that may have been written to: those above pods, pods, and what is directly below
// them. Where not all could be listed, err says so, and what was found is good.
func gather(fs *cgroup.FS, cgroupRoot string, k Known) (pods []Pod, paths []string, err error) {
	objects := make(map[string]*v1.Pod, len(k.Objects))
	for _, o := range k.Objects {
		objects[string(o.UID)] = o
	}
	seen, buf := map[string]bool{}, make([]byte, 16<<10)
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
			pods = append(pods, k.pod(p, objects[p.UID], below))
		}
	}
	return pods, paths, err
}

// children are the paths of the cgroups directly below one.
func children(fs *cgroup.FS, path string, buf []byte) (out []string, err error) {
	err = fs.ChildrenUntil(path, buf, func(name string) bool {
		out = append(out, path+"/"+name)
		return len(out) < maxContainers
	})
	return out, err
}

// pod puts together what is told of one. An object's word is exact. Without one, what the runtime
// tells is a range: the least is protected, and nothing is throttled.
func (k *Known) pod(p stats.PodCgroup, object *v1.Pod, below []string) Pod {
	out := Pod{Cgroup: p.Path, QOSClass: p.QOSClass}
	told := k.Runtime[p.UID]
	if object != nil {
		var requests admit.Amounts
		object, requests = admit.Requested(object)
		out.Request = stats.Some(uint64(requests[v1.ResourceMemory]))
	} else if told != nil {
		out.Request = least(told.MemoryRequest(p.QOSClass, k.Capacity))
	}
	if told == nil {
		return out
	}
	for i := range told.Containers {
		c := &told.Containers[i]
		at := slices.IndexFunc(below, func(path string) bool { return isOf(path, c.ID) })
		if at < 0 {
			continue
		}
		container := Container{Cgroup: below[at]}
		if object == nil {
			container.Request = least(podindex.ContainerMemoryRequest(p.QOSClass, c, k.Capacity))
		} else if r := resourcesOf(object, c.Name); r != nil {
			container.Request, container.Limit = stats.Some(memory(r.Requests)), stats.Some(memory(r.Limits))
		}
		out.Containers = append(out.Containers, container)
	}
	return out
}

// least is the lower bound of what is requested; absent where that is 0, for then nothing is known.
func least(r stats.Opt[stats.Range]) stats.Opt[uint64] {
	return stats.Opt[uint64]{V: r.V.Min, OK: r.OK && r.V.Min > 0}
}

// memory is that of a list, in bytes, floor 0; above the greatest 64-bit number it is that number.
func memory(list v1.ResourceList) uint64 {
	q := list[v1.ResourceMemory]
	if q.Cmp(*resource.NewQuantity(math.MaxInt64, resource.DecimalSI)) > 0 {
		return math.MaxInt64
	}
	return uint64(max(q.Value(), 0))
}

// isOf reports whether a cgroup is that of a container: runtimes call it by its id, or as in
// cri-containerd-ID.scope. CRI-O's monitor of a container, crio-conmon-ID.scope, is not.
func isOf(path, id string) bool {
	name := strings.TrimSuffix(path[strings.LastIndexByte(path, '/')+1:], ".scope")
	prefix, ok := strings.CutSuffix(name, id)
	return id != "" && ok && (prefix == "" || strings.HasSuffix(prefix, "-") &&
		!strings.HasSuffix(prefix, "-conmon-"))
}

// resourcesOf are what a container of a pod object asks for; nil: it has none of that name.
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
