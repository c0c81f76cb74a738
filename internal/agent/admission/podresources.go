package admission

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
	"jettison/cri"
	"jettison/eviction"
	"jettison/stats"
	"jettison/stats/read"
)

// heldPod caches the resources that a pod holds, with the inputs they were computed from. It is
// immutable.
type heldPod struct {
	pod    *read.Pod
	object *v1.Pod
	member bool // a member of the socket's group provided the object
	held   admit.Held
}

// holdsResources reports whether a pod of the runtime holds resources: a sandbox is ready or a
// container exists, and that sandbox has not ended since it was listed.
func holdsResources(pod *read.Pod, ended func(uid, sandbox string) bool) bool {
	lives := func(sandbox string) bool { return ended == nil || !ended(pod.PodRef.UID, sandbox) }
	return slices.ContainsFunc(pod.Sandboxes, func(s cri.PodSandbox) bool {
		return s.Ready && lives(s.ID)
	}) ||
		slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return lives(c.SandboxID) })
}

// held returns the resources that a pod of the runtime holds: those of its object or, without an
// object, the lower bounds from the runtime.
func (p *Part) held(pod *read.Pod, object *v1.Pod, judged *eviction.Pod) admit.Held {
	reported := pod.FromRuntime(p.o.Self())
	if object != nil && !sameName(object, reported.PodRef) {
		object, judged = nil, nil
	}
	priority, _ := p.a.policy.Load().PriorityAndProtection(&reported, judged)
	least := p.minRequests(pod, &reported)
	out := admit.Held{Requests: least}
	if object != nil {
		out = admit.HeldBy(admit.StoredObject(object))
		most := admit.Amounts(nil)
		switch {
		case stats.Allocated(object): // exact, while the runtime keeps the request from before a resize
			least = nil
		// the runtime adds up only the limits that are set: its bound could be too low for root's object
		case p.members[reported.PodRef.UID] && !out.Static:
			most = p.maxRequests(pod, &reported)
		}
		clampRequests(out.Requests, reported.QOSClass, least, most)
	}
	out.UID, out.Namespace, out.Name = types.UID(reported.PodRef.UID), reported.PodRef.Namespace,
		reported.PodRef.Name
	out.Created, out.Ending = reported.StartTime, false // method pods sets Ending
	if reported.QOSClass != "" {
		out.QOS = reported.QOSClass
	}
	if !out.Priority.OK {
		out.Priority = priority
	}
	source, has := reported.Annotations[annotationSource]
	_, mirror := reported.Annotations[annotationMirror]
	out.Static = out.Static || has && source != "api" || mirror
	out.Protected = p.a.policy.Load().PreemptionProtected(&reported, judged) != ""
	if object != nil && p.members[reported.PodRef.UID] {
		p.restrictMember(&out, pod, &reported)
	}
	return out
}

// restrictMember restricts the effect of a member's object on victim selection: it can protect its
// pod, but cannot make it a victim or claim more resources than the runtime reports. Only root may
// cause preemption.
func (p *Part) restrictMember(out *admit.Held, pod *read.Pod, reported *stats.PodStats) {
	priority, _ := p.a.policy.Load().PriorityAndProtection(reported, nil)
	if priority.OK && priority.V > out.Priority.V {
		out.Priority = priority
	}
	out.Protected = out.Protected || p.a.policy.Load().PreemptionProtected(reported, nil) != ""
	out.QOS = reported.QOSClass
	out.CertainRequests = p.minRequests(pod, reported)
}

// minRequests returns the lower bounds of a pod's requests by the runtime's data on its containers
// and its sandbox. The sandbox includes containers that do not exist yet.
func (p *Part) minRequests(pod *read.Pod, reported *stats.PodStats) admit.Amounts {
	out := admit.Amounts{}
	raise := func(name v1.ResourceName, v int64) {
		if v > out[name] {
			out[name] = v
		}
	}
	sandbox := minRequests(&pod.Sandboxes[0], reported.QOSClass)
	raise(v1.ResourceCPU, sandbox.Cpu().MilliValue())
	raise(v1.ResourceMemory, sandbox.Memory().Value())
	if r := pod.MemoryRequest(reported.QOSClass, p.memory()); r.OK {
		raise(v1.ResourceMemory, clamped(r.V.Min))
	}
	if r := reported.CPURequestMillis; r.OK {
		raise(v1.ResourceCPU, clamped(r.V.Min))
	}
	return out
}

// maxRequests returns the upper bounds of a pod's requests from the same data as minRequests. After
// a resize the containers may be larger than the sandbox states.
func (p *Part) maxRequests(pod *read.Pod, reported *stats.PodStats) admit.Amounts {
	out := maxRequests(&pod.Sandboxes[0])
	raise := func(name v1.ResourceName, r stats.Opt[stats.Range]) {
		if v, ok := out[name]; ok && r.OK {
			out[name] = max(v, clamped(r.V.Max))
		}
	}
	raise(v1.ResourceCPU, reported.CPURequestMillis)
	raise(v1.ResourceMemory, pod.MemoryRequest(reported.QOSClass, p.memory()))
	return out
}

// memory returns the node's memory capacity in bytes.
func (p *Part) memory() stats.Opt[uint64] {
	q, ok := p.capacity[v1.ResourceMemory]
	return stats.Opt[uint64]{V: uint64(max(q.Value(), 0)), OK: ok}
}

// pods returns the resources that all pods of the runtime hold. Cached values are reused while
// their inputs are unchanged.
func (p *Part) pods(now time.Time) []admit.Held {
	next := make(map[string]*heldPod, len(p.index))
	out := make([]admit.Held, 0, len(p.index))
	ending, undying := p.o.Evictions(now)
	dead := map[string][]string(nil)
	if p.o.Dead != nil {
		dead = p.o.Dead(now)
	}
	for uid, pod := range p.index {
		if !holdsResources(pod, p.o.Ended) || len(pod.Sandboxes) > 0 &&
			slices.Contains(dead[uid], pod.Sandboxes[0].ID) {
			continue
		}
		k, object := p.heldPods[uid], p.objects[uid]
		if k == nil || k.pod != pod || k.object != object || k.member != p.members[uid] {
			k = &heldPod{pod, object, p.members[uid], p.held(pod, object, p.judged[uid])}
		}
		next[uid] = k
		held := k.held
		held.Ending = ending[uid]
		held.Protected = held.Protected || undying[uid]
		out = append(out, held)
	}
	p.heldPods = next
	return out
}
