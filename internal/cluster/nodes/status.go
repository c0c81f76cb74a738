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

// status returns the state of all nodes.
func (l *loop) status() *report.Status {
	now := l.clock.now()
	evictions, marks := l.queue.depth()
	s := &report.Status{
		Time: now, Leader: l.ctrl.identity(), Mode: l.ctrl.deps.Config.Mode, Held: l.state.heldReason,
		Read:  l.clock.fromMachine(l.ctrl.deps.Mirror.NodesCurrentAt()),
		Zones: map[string]report.Zone{}, Nodes: []report.Node{},
		Queues: map[string]int{"nodes": len(l.queue.nodeJobs), "evictions": evictions, "marks": marks},
	}
	if l.lastActions != nil {
		s.Doubt = l.lastActions.Doubt
	}
	if at, ok := l.schedule.next(); ok {
		s.Next = &at
	}
	for name, z := range l.nodes.Zones() {
		s.Zones[name] = report.Zone{State: string(z.State), Ready: z.Ready, NotReady: z.NotReady,
			Waiting: z.Waiting, Rate: z.Rate}
	}
	l.ctrl.deps.Mirror.View(func(v *mirror.View) {
		l.schedule.changed = l.schedule.changed || v.Changed
		found := l.nodes.Report(now, l.lifecycleInput(v, s.Read))
		for i := range found {
			s.Nodes = append(s.Nodes, l.nodeReport(&found[i]))
		}
	})
	return s
}

// identity returns the name of this replica.
func (p *controller) identity() string {
	if p.leader == nil {
		return "this process"
	}
	return p.leader.Identity()
}

// nodeReport converts the report of a node.
func (l *loop) nodeReport(r *lifecycle.NodeReport) report.Node {
	n := report.Node{
		Name: r.Node.Name, Zone: r.Zone, Heard: optional(r.Heard), Since: optional(r.NotReadySince), Place: r.Place,
		Due: optional(r.Due), Taints: []string{},
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
		n.Taints = append(n.Taints, taintText(&r.Node.Spec.Taints[i]))
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

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// explain returns the deadlines of the pods of a node, or of one pod. object is NODE,
// NAMESPACE/POD, or POD in the namespace default.
func (l *loop) explain(object string) (out *report.Explanation, err error) {
	now := l.clock.now()
	l.ctrl.deps.Mirror.View(func(v *mirror.View) {
		l.schedule.changed = l.schedule.changed || v.Changed
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
				err = fmt.Errorf("no node %q and no bound, running pod %s/%s", object,
					namespace, pod)
				return
			}
			name, pods = p.Spec.NodeName, append(pods, p)
		}
		out = l.explanation(now, v, name, pods)
	})
	return out, err
}

func (l *loop) explanation(now time.Time, v *mirror.View, name string,
	pods []*v1.Pod) *report.Explanation {
	out := &report.Explanation{Time: now, Node: report.Node{Name: name, Health: "gone"},
		Pods: []report.Pod{}}
	found := l.nodes.Report(now, l.lifecycleInput(v, now))
	for i := range found {
		if found[i].Node.Name == name {
			out.Node = l.nodeReport(&found[i])
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range pods {
		out.Pods = append(out.Pods, l.podReport(now, v.Nodes[name], p))
	}
	return out
}

// podReport returns the taints and the deadline of a pod. n is nil if the node is deleted or
// unknown.
func (l *loop) podReport(now time.Time, n *v1.Node, p *v1.Pod) report.Pod {
	out := report.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID),
		Taints: []report.Taint{}}
	if taint.Terminating(p) {
		out.Stays = "already terminating since " + p.DeletionTimestamp.UTC().Format(time.RFC3339)
	}
	if n == nil {
		out.Stays = "node " + p.Spec.NodeName + " does not exist: the pod garbage collector deletes the pod"
		return out
	}
	for _, verdict := range l.pods.Explain(now, n, p) {
		t := report.Taint{Taint: taintText(&verdict.Taint), Since: verdict.Taint.TimeAdded.Time,
			Deadline: optional(verdict.Deadline)}
		if verdict.Unread {
			t.Toleration = "not read yet"
		} else if verdict.Toleration != nil {
			t.Toleration = tolerationText(verdict.Toleration)
		}
		if t.Deadline != nil && (out.Deadline == nil || t.Deadline.Before(*out.Deadline)) {
			out.Deadline = t.Deadline
		}
		out.Taints = append(out.Taints, t)
	}
	return out
}

// tolerationText formats a toleration as KEY[=VALUE]:EFFECT and its period.
func tolerationText(t *v1.Toleration) string {
	key, effect, period := t.Key, string(t.Effect), "forever"
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
		period = fmt.Sprintf("for %d s", *t.TolerationSeconds)
	}
	return key + ":" + effect + " " + period
}
