package eviction

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// Pod is the part of a pod object that the Manager uses. It never changes. The runtime knows none
// of it exactly.
type Pod struct {
	Ref         stats.PodReference
	annotations map[string]string
	// absent: not set, which ranks as 0, as in the kubelet, and lifts no protection
	priority stats.Opt[int32]
	class    string // its priority class, if that is a critical one
	qos      stats.QOSClass
	// Succeeded or Failed; the kernel's view of running processes takes precedence
	finished bool
	// terminationGrace in seconds; absent: not set.
	terminationGrace stats.Opt[int64]

	memoryRequest, storageRequest uint64 // bytes
	// memoryOfPod is the request of pod-level resources, which the message names; nil: none.
	memoryOfPod *resource.Quantity
	// regular containers, then init containers: the order in which messages look for a name
	containers []podContainer
	// storageLimit is the sum of the containers' limits on ephemeral storage; nil: no container has
	// one.
	storageLimit *resource.Quantity
	emptyDirs    []emptyDir          // those with a size limit above 0, on disk
	localVolumes map[string]struct{} // names of the volumes that count as the pod's disk usage

	// unseen represents the pod in a ranking while the Summary does not contain it.
	unseen stats.PodStats
}

// podContainer is one container of a pod object.
type podContainer struct {
	name                          string
	memoryRequest, storageRequest resource.Quantity
	// storageLimit is its limit on ephemeral storage in bytes, and storageLimitText the limit as
	// written. It is absent without a limit, for 0, and for an init container, where the kubelet does
	// not enforce it.
	storageLimit     stats.Opt[uint64]
	storageLimitText string
}

// emptyDir is a volume with a size limit, in bytes and as written.
type emptyDir struct {
	name, text string
	limit      uint64
}

// NewPod copies the used parts of an object and does not keep the object. A client cannot make a
// pod static or a mirror: the annotations for that are ignored.
func NewPod(p *v1.Pod) *Pod { return newPod(p, false) }

// NewManifestPod is NewPod for an object that root wrote, in a static pod's manifest or a frame. It
// keeps the annotations of static and mirror pods.
func NewManifestPod(p *v1.Pod) *Pod { return newPod(p, true) }

func newPod(p *v1.Pod, manifest bool) *Pod {
	out := &Pod{
		Ref:         stats.PodReference{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
		annotations: map[string]string{},
		qos:         stats.QOSOf(p),
		finished:    p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed,

		memoryRequest:  bytes(podRequest(p, v1.ResourceMemory)),
		storageRequest: bytes(podRequest(p, v1.ResourceEphemeralStorage)),
		storageLimit:   podStorageLimit(p),
		localVolumes:   map[string]struct{}{},
	}
	for key, value := range p.Annotations {
		if strings.HasPrefix(key, "jettison/") || manifest &&
			strings.HasPrefix(key, "kubernetes.io/config.") {
			out.annotations[key] = value
		}
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
		out.containers = append(out.containers, newContainer(&p.Spec.InitContainers[i], false))
	}
	for i := range p.Spec.Volumes {
		out.volume(&p.Spec.Volumes[i])
	}
	out.unseen = stats.PodStats{PodRef: out.Ref, QOSClass: out.qos, Announced: true}
	return out
}

// Names reports whether the object belongs to the pod that the runtime has under its UID. A name
// that one of the two does not have is no contradiction.
func (p *Pod) Names(runtime stats.PodReference) bool {
	same := func(a, b string) bool { return a == b || a == "" || b == "" }
	return same(p.Ref.Namespace, runtime.Namespace) && same(p.Ref.Name, runtime.Name)
}

// of reports whether the object belongs to a pod, as far as the runtime has announced the pod.
func (p *Pod) of(pod *stats.PodStats) bool { return !pod.Announced || p.Names(pod.PodRef) }

func newContainer(c *v1.Container, regular bool) podContainer {
	requests := c.Resources.Requests
	// copies: a quantity with a fraction is a pointer, and others own the object too
	out := podContainer{
		name:           c.Name,
		memoryRequest:  requests[v1.ResourceMemory].DeepCopy(),
		storageRequest: requests[v1.ResourceEphemeralStorage].DeepCopy(),
	}
	if limit, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]; ok && regular &&
		limit.Value() != 0 {
		out.storageLimit, out.storageLimitText = stats.Some(bytes(limit)), limit.String()
	}
	return out
}

// volume stores a volume that is on the node's disk (pkg/kubelet/eviction/helpers.go
// localVolumeNames; a hostPath yields no figures there either). A volume in memory is bounded by
// the size of its tmpfs, so its limit needs no enforcement.
func (p *Pod) volume(v *v1.Volume) {
	onDisk := v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
	if v.HostPath != nil || v.GitRepo != nil || v.ConfigMap != nil || onDisk {
		p.localVolumes[v.Name] = struct{}{}
	}
	if onDisk && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() == 1 {
		p.emptyDirs = append(p.emptyDirs, emptyDir{v.Name, v.EmptyDir.SizeLimit.String(),
			bytes(*v.EmptyDir.SizeLimit)})
	}
}

// bytes returns a quantity as a number, at least 0.
func bytes(q resource.Quantity) uint64 { return whole(&q) }
