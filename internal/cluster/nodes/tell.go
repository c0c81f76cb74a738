package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
	"jettison/internal/cluster/mirror"
	"jettison/internal/cluster/report"
)

// status is how all nodes are.
func (l *loop) status() *report.Status {
	now := l.clock.now()
	evictions, marks := l.queue.waiting()
	s := &report.Status{
		Time: now, Leader: l.part.name(), Mode: l.part.o.Config.Mode, Held: l.watch.rival,
		Read:  l.part.o.Mirror.Read(),
		Zones: map[string]report.Zone{}, Nodes: []report.Node{},
		Queues: map[string]int{"nodes": len(l.queue.node), "evictions": evictions, "marks": marks},
	}
	if l.met != nil {
		s.Doubt = l.met.Doubt
	}
	if at, ok := l.plan.at(); ok {
		s.Next = &at
	}
	for name, z := range l.nodes.Zones() {
		s.Zones[name] = report.Zone{State: string(z.State), Ready: z.Ready, NotReady: z.NotReady,
			Waiting: z.Waiting, Rate: z.Rate}
	}
	l.part.o.Mirror.Look(func(v *mirror.View) {
		l.plan.moved = l.plan.moved || v.Moved
		found := l.nodes.Report(now, l.seenOf(v, s.Read))
		for i := range found {
			s.Nodes = append(s.Nodes, l.node(&found[i]))
		}
	})
	return s
}

// name is that of this replica.
func (p *parts) name() string {
	if p.leader == nil {
		return "this process"
	}
	return p.leader.Identity()
}

// node is how one is.
func (l *loop) node(r *lifecycle.NodeReport) report.Node {
	n := report.Node{
		Name: r.Node.Name, Zone: r.Zone, Heard: some(r.Heard), Since: some(r.NotReadySince), Place: r.Place,
		Due: some(r.Due), Taints: []string{},
	}
	switch r.Ready {
	case v1.ConditionTrue:
		n.Health = "Ready"
	case v1.ConditionFalse:
		n.Health = "NotReady"
	case v1.ConditionUnknown:
		n.Health = "Unknown"
	default:
		n.Health = "New"
	}
	for i := range r.Node.Spec.Taints {
		n.Taints = append(n.Taints, text(&r.Node.Spec.Taints[i]))
	}
	var queue []string
	if l.queue.busy[n.Name] > 0 {
		queue = append(queue, "writes")
	}
	if r.Marks > 0 {
		queue = append(queue, fmt.Sprintf("%d marks", r.Marks))
	}
	n.Queue = strings.Join(queue, " ")
	return n
}

func some(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// explain says what becomes of a node's pods, or of a pod: NODE, NAMESPACE/POD, or a pod of the
// namespace default.
func (l *loop) explain(object string) (out *report.Explanation, err error) {
	now := l.clock.now()
	l.part.o.Mirror.Look(func(v *mirror.View) {
		l.plan.moved = l.plan.moved || v.Moved
		name, pods := object, []*v1.Pod{}
		if n := v.Nodes[object]; n != nil {
			pods = slices.Clone(v.PodsOf(object))
		} else {
			namespace, pod, ok := strings.Cut(object, "/")
			if !ok {
				namespace, pod = v1.NamespaceDefault, object
			}
			p := v.PodByName(namespace, pod)
			if p == nil {
				err = fmt.Errorf("there is no node %q, and no pod %s/%s that is bound and not over", object,
					namespace, pod)
				return
			}
			name, pods = p.Spec.NodeName, append(pods, p)
		}
		out = l.explained(now, v, name, pods)
	})
	return out, err
}

func (l *loop) explained(now time.Time, v *mirror.View, name string,
	pods []*v1.Pod) *report.Explanation {
	out := &report.Explanation{Time: now, Node: report.Node{Name: name, Health: "gone"},
		Pods: []report.Pod{}}
	found := l.nodes.Report(now, l.seenOf(v, now))
	for i := range found {
		if found[i].Node.Name == name {
			out.Node = l.node(&found[i])
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range pods {
		out.Pods = append(out.Pods, l.pod(now, v.Nodes[name], p))
	}
	return out
}

// pod is what becomes of one. Its node may be gone, or not be known yet: nil.
func (l *loop) pod(now time.Time, n *v1.Node, p *v1.Pod) report.Pod {
	out := report.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID),
		Taints: []report.Taint{}}
	if taint.Terminating(p) {
		out.Stays = "it is going already, since " + p.DeletionTimestamp.UTC().Format(time.RFC3339)
	}
	if n == nil {
		out.Stays = "its node " + p.Spec.NodeName + " is gone: that is the pod garbage collector's"
		return out
	}
	for _, one := range l.pods.Explain(now, n, p) {
		t := report.Taint{Taint: text(&one.Taint), Since: one.Taint.TimeAdded.Time,
			Deadline: some(one.Deadline)}
		if one.Toleration != nil {
			t.Toleration = toleration(one.Toleration)
		}
		if t.Deadline != nil && (out.Deadline == nil || t.Deadline.Before(*out.Deadline)) {
			out.Deadline = t.Deadline
		}
		out.Taints = append(out.Taints, t)
	}
	return out
}

// toleration is one as KEY[=VALUE]:EFFECT for SECONDS.
func toleration(t *v1.Toleration) string {
	key, effect, long := t.Key, string(t.Effect), "for ever"
	if key == "" {
		key = "any"
	}
	if t.Value != "" {
		key += "=" + t.Value
	}
	if effect == "" {
		effect = "any"
	}
	if t.TolerationSeconds != nil {
		long = fmt.Sprintf("for %d s", *t.TolerationSeconds)
	}
	return key + ":" + effect + " " + long
}
