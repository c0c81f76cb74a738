package eviction

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// Pod is the part of a pod object that the Manager uses. It never changes. The runtime reports
// these facts only in part, or inexactly.
type Pod struct {
	Ref         stats.PodReference
	annotations map[string]string
	// absent: not set. It then ranks as 0, as in the kubelet, but protects the pod in protected
	// namespaces.
	priority stats.Opt[int32]
	class    string // the priority class; empty unless it is a critical class
	qos      stats.QOSClass
	// Succeeded or Failed; the kernel's view of running processes takes precedence
	finished bool
	// terminationGrace in seconds; absent: not set.
	terminationGrace stats.Opt[int64]

	memoryRequest, storageRequest uint64 // bytes
	// allocated: memoryRequest is the kubelet's allocation, and not only the spec's
	allocated bool
	// memoryOfPod is the request of pod-level resources, which the message names; nil: none.
	memoryOfPod *resource.Quantity
	// regular containers, then init containers: the order in which messages look for a name
	containers []podContainer
	// storageLimit is the sum of the containers' limits on ephemeral storage; nil: no container has
	// one.
	storageLimit *resource.Quantity
	emptyDirs    []emptyDir          // those with a size limit above 0, on disk or in memory
	localVolumes map[string]struct{} // names of the volumes that count as the pod's disk usage
	// writesHost: a container may write to a hostPath volume; writesClaim: to a persistent volume.
	// Neither is measured, and a persistent volume may be a directory of the node's disk, too.
	writesHost, writesClaim bool
}

// podContainer is one container of a pod object.
type podContainer struct {
	name                          string
	memoryRequest, storageRequest resource.Quantity
	// storageLimit is the limit on ephemeral storage in bytes, and storageLimitText the limit as
	// written. Both are absent without a limit, for a limit of 0, and for an init container that is
	// no sidecar, where the kubelet does not enforce it.
	storageLimit     stats.Opt[uint64]
	storageLimitText string
}

// emptyDir is a volume with a size limit, in bytes and as written.
type emptyDir struct {
	name, text string
	limit      uint64
}

// NewPod copies the used parts of an object, or shares its annotations, and does not keep the
// object. Its requests are the allocation in the status (stats.Granted). The caller drops an
// allocation that it does not trust. A client cannot mark a pod as static or mirror: those
// annotations are ignored.
func NewPod(p *v1.Pod) *Pod { return newPod(p, false) }

// NewManifestPod is NewPod for an object that root wrote, in a static pod's manifest or a frame. It
// keeps the annotations of static and mirror pods.
func NewManifestPod(p *v1.Pod) *Pod { return newPod(p, true) }

func newPod(p *v1.Pod, manifest bool) *Pod {
	p = stats.Granted(p)
	out := &Pod{
		Ref:         stats.PodReference{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
		annotations: deciding(p.Annotations, manifest),
		qos:         stats.QOSOf(p),
		finished:    p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed,

		allocated:      stats.Allocated(p),
		memoryRequest:  bytes(podRequest(p, v1.ResourceMemory)),
		storageRequest: bytes(podRequest(p, v1.ResourceEphemeralStorage)),
		storageLimit:   podStorageLimit(p),
	}
	if total, ok := stats.AllocatedTotal(p, v1.ResourceMemory); ok {
		out.memoryRequest = min(out.memoryRequest, bytes(total))
	}
	if p.Spec.Priority != nil {
		out.priority = stats.Some(*p.Spec.Priority)
	}
	if c := p.Spec.PriorityClassName; c == "system-node-critical" || c == "system-cluster-critical" {
		out.class = c
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		out.terminationGrace = stats.Some(*s)
	}
	if stats.PodLevel(p.Spec.Resources) {
		if q, ok := p.Spec.Resources.Requests[v1.ResourceMemory]; ok {
			q = q.DeepCopy()
			out.memoryOfPod = &q
		}
	}
	for i := range p.Spec.Containers {
		out.containers = append(out.containers, newContainer(&p.Spec.Containers[i], true))
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		out.containers = append(out.containers, newContainer(c, sidecar))
	}
	written := writableVolumes(&p.Spec)
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		out.volume(v)
		claim := v.PersistentVolumeClaim
		out.writesHost = out.writesHost || v.HostPath != nil && written[v.Name]
		out.writesClaim = out.writesClaim ||
			(claim != nil && !claim.ReadOnly || v.Ephemeral != nil) && written[v.Name]
	}
	return out
}

// deciding returns the annotations that decisions read, including the kubelet's of a manifest. An
// object without other annotations shares its map, which must not change.
func deciding(all map[string]string, manifest bool) map[string]string {
	decides := func(key string) bool {
		return strings.HasPrefix(key, "jettison/") || manifest &&
			strings.HasPrefix(key, "kubernetes.io/config.")
	}
	for key := range all {
		if !decides(key) {
			out := maps.Clone(all)
			maps.DeleteFunc(out, func(key, _ string) bool { return !decides(key) })
			return out
		}
	}
	return all
}

// unseen returns the pod for a ranking while the Summary does not contain it.
func (p *Pod) unseen() *stats.PodStats {
	return &stats.PodStats{PodRef: p.Ref, QOSClass: p.qos, Announced: true}
}

// writableVolumes returns the names of the volumes that containers mount for writing.
func writableVolumes(s *v1.PodSpec) map[string]bool {
	out := map[string]bool{}
	for _, containers := range [][]v1.Container{s.Containers, s.InitContainers} {
		for i := range containers {
			for j := range containers[i].VolumeMounts {
				if m := &containers[i].VolumeMounts[j]; !m.ReadOnly {
					out[m.Name] = true
				}
			}
		}
	}
	return out
}

// Names reports whether the object belongs to the pod that the runtime reports with the same UID. A
// missing namespace or name matches any.
func (p *Pod) Names(runtime stats.PodReference) bool {
	same := func(a, b string) bool { return a == b || a == "" || b == "" }
	return same(p.Ref.Namespace, runtime.Namespace) && same(p.Ref.Name, runtime.Name)
}

// belongsTo reports whether the object belongs to a pod. A pod that the runtime has not announced matches
// any object.
func (p *Pod) belongsTo(pod *stats.PodStats) bool { return !pod.Announced || p.Names(pod.PodRef) }

func newContainer(c *v1.Container, limited bool) podContainer {
	requests := c.Resources.Requests
	// copied, because a quantity with a fraction contains a pointer, and the object is shared
	out := podContainer{
		name:           c.Name,
		memoryRequest:  requests[v1.ResourceMemory].DeepCopy(),
		storageRequest: requests[v1.ResourceEphemeralStorage].DeepCopy(),
	}
	if limit, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; ok && limited &&
		limit.Value() != 0 {
		out.storageLimit, out.storageLimitText = stats.Some(bytes(limit)), limit.String()
	}
	return out
}

// volume stores a volume that is on the node's disk (pkg/kubelet/eviction/helpers.go
// localVolumeNames, which includes hostPath volumes although they are not measured), and the size
// limit of an emptyDir of any medium (pkg/kubelet/eviction/eviction_manager.go
// emptyDirLimitEviction). A tmpfs may be larger than the limit, and a hugetlbfs has no size.
func (p *Pod) volume(v *v1.Volume) {
	onDisk := v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
	if v.HostPath != nil || v.GitRepo != nil || v.ConfigMap != nil || onDisk {
		if p.localVolumes == nil {
			p.localVolumes = map[string]struct{}{}
		}
		p.localVolumes[v.Name] = struct{}{}
	}
	if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() == 1 {
		p.emptyDirs = append(p.emptyDirs, emptyDir{v.Name, v.EmptyDir.SizeLimit.String(),
			bytes(*v.EmptyDir.SizeLimit)})
	}
}

// bytes returns a quantity as a number, at least 0.
func bytes(q resource.Quantity) uint64 { return whole(&q) }
