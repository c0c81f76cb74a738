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

// known is what a pod of the runtime holds, and of what it was made. It is not changed.
type known struct {
	pod    *read.Pod
	object *v1.Pod
	member bool // put the object
	held   admit.Held
}

// holds reports whether a pod of the runtime takes room: a sandbox of it is ready, or a container
// lives, and that has not ended since it was listed.
func holds(pod *read.Pod, ended func(uid, sandbox string) bool) bool {
	lives := func(sandbox string) bool { return ended == nil || !ended(pod.PodRef.UID, sandbox) }
	return slices.ContainsFunc(pod.Sandboxes, func(s cri.PodSandbox) bool {
		return s.Ready && lives(s.ID)
	}) ||
		slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return lives(c.SandboxID) })
}

// held is what a pod of the runtime holds: by its object, or without one by the runtime's word, of
// which the least counts.
func (p *Part) held(pod *read.Pod, object *v1.Pod, judged *eviction.Pod) admit.Held {
	told := pod.Told(p.o.Self())
	if object != nil && !names(object, told.PodRef) {
		object, judged = nil, nil
	}
	priority, _ := p.a.policy.Load().Judge(&told, judged)
	least := p.least(pod, &told)
	out := admit.Held{Requests: least}
	if object != nil {
		out = admit.HeldBy(attributes(object))
		most := admit.Amounts(nil)
		if p.members[told.PodRef.UID] && !out.Static { // else root wrote it
			most = p.most(pod, &told)
		}
		between(out.Requests, told.QOSClass, least, most)
	}
	out.UID, out.Namespace, out.Name = types.UID(told.PodRef.UID), told.PodRef.Namespace,
		told.PodRef.Name
	out.Created, out.Ending = told.StartTime, false // whether the node kills it is the loop's to say
	if told.QOSClass != "" {
		out.QOS = told.QOSClass
	}
	if !out.Priority.OK {
		out.Priority = priority
	}
	source, has := told.Annotations[annotationSource]
	_, mirror := told.Annotations[annotationMirror]
	out.Static = out.Static || has && source != "api" || mirror
	out.Spared = p.a.policy.Load().Spares(&told, judged) != ""
	if object != nil && p.members[told.PodRef.UID] {
		p.doubt(&out, pod, &told)
	}
	return out
}

// doubt has a member's object make its pod no victim, and none that is larger than what the runtime
// tells: preempting is root's. It may keep one from being a victim.
func (p *Part) doubt(out *admit.Held, pod *read.Pod, told *stats.PodStats) {
	priority, _ := p.a.policy.Load().Judge(told, nil)
	if priority.OK && priority.V > out.Priority.V {
		out.Priority = priority
	}
	out.Spared, out.QOS = out.Spared || p.a.policy.Load().Spares(told, nil) != "", told.QOSClass
	out.Surely = p.least(pod, told)
}

// least is what a pod requests at least, by what the runtime tells of its containers, and of its
// sandbox: that one was made for those, too, which are still to come.
func (p *Part) least(pod *read.Pod, told *stats.PodStats) admit.Amounts {
	out := admit.Amounts{}
	raise := func(name v1.ResourceName, v int64) {
		if v > out[name] {
			out[name] = v
		}
	}
	sandbox := requested(&pod.Sandboxes[0], told.QOSClass)
	raise(v1.ResourceCPU, sandbox.Cpu().MilliValue())
	raise(v1.ResourceMemory, sandbox.Memory().Value())
	if r := pod.MemoryRequest(told.QOSClass, p.memory()); r.OK {
		raise(v1.ResourceMemory, clamped(r.V.Min))
	}
	if r := told.CPURequestMillis; r.OK {
		raise(v1.ResourceCPU, clamped(r.V.Min))
	}
	return out
}

// most is what a pod requests at most, by the same words. One that was resized has containers that
// are larger than its sandbox says.
func (p *Part) most(pod *read.Pod, told *stats.PodStats) admit.Amounts {
	out := atMost(&pod.Sandboxes[0])
	raise := func(name v1.ResourceName, r stats.Opt[stats.Range]) {
		if v, ok := out[name]; ok && r.OK {
			out[name] = max(v, clamped(r.V.Max))
		}
	}
	raise(v1.ResourceCPU, told.CPURequestMillis)
	raise(v1.ResourceMemory, pod.MemoryRequest(told.QOSClass, p.memory()))
	return out
}

// memory is what the node has of it, in bytes.
func (p *Part) memory() stats.Opt[uint64] {
	q, ok := p.capacity[v1.ResourceMemory]
	return stats.Opt[uint64]{V: uint64(max(q.Value(), 0)), OK: ok}
}

// pods are all that the runtime's pods hold. What was made of the same as before is taken again.
func (p *Part) pods(now time.Time) []admit.Held {
	next := make(map[string]*known, len(p.index))
	out := make([]admit.Held, 0, len(p.index))
	ending, undying := p.o.Evictions(now)
	dead := map[string][]string(nil)
	if p.o.Dead != nil {
		dead = p.o.Dead(now)
	}
	for uid, pod := range p.index {
		if !holds(pod, p.o.Ended) || len(pod.Sandboxes) > 0 &&
			slices.Contains(dead[uid], pod.Sandboxes[0].ID) {
			continue
		}
		k, object := p.known[uid], p.objects[uid]
		if k == nil || k.pod != pod || k.object != object || k.member != p.members[uid] {
			k = &known{pod, object, p.members[uid], p.held(pod, object, p.judged[uid])}
		}
		next[uid] = k
		held := k.held
		held.Ending = ending[uid]
		held.Spared = held.Spared || undying[uid]
		out = append(out, held)
	}
	p.known = next
	return out
}
