package oracle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The troubles.
const (
	restarted   = "the controllers are started anew"
	clockBack   = "a node's clock is set back"
	tainted     = "somebody taints a node"
	untainted   = "somebody takes the taint away"
	retolerated = "a pod's tolerations change"
	finished    = "a pod is finished"
	terminating = "a pod is being deleted"
	replaced    = "a pod of the same name is elsewhere"
	removed     = "a node is deleted"
	remade      = "a node is made again"
	excluded    = "a node is excluded from disruption checks"
	cordoned    = "a node is cordoned"
	pressed     = "a node is under pressure"
)

func (l *timeline) note(what string, at time.Duration, object string) {
	l.troubles = append(l.troubles, trouble{what: what, at: at, object: object})
}

// trouble adds a random trouble.
func (l *timeline) trouble() {
	at := l.seconds(60, 440)
	name := l.names[l.IntN(len(l.names))]
	p := l.pods[l.IntN(len(l.pods))]
	switch l.IntN(12) {
	case 0, 1:
		l.note(restarted, at+begins, "")
		l.changes = append(l.changes, change{at: at + begins, restart: true})
	case 2, 3, 4:
		l.taint(name, at)
	case 5, 6:
		tolerations := l.tolerations()
		l.note(retolerated, at, "Pod/"+keyOf(p))
		l.onPod(at, p, func(p *v1.Pod) { p.Spec.Tolerations = tolerations })
	case 7:
		l.note(finished, at, "Pod/"+keyOf(p))
		l.onPod(at, p, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	case 8:
		l.note(terminating, at, "Pod/"+keyOf(p))
		l.onPod(at, p, func(p *v1.Pod) {
			p.DeletionTimestamp = new(stamp(at + happens))
			p.Finalizers = []string{"example.com/slow"}
		})
	case 9:
		l.replace(p, at)
	case 10:
		l.remove(name, at)
	case 11:
		l.label(name, at)
	}
}

func (l *timeline) onPod(at time.Duration, p *v1.Pod, edit func(*v1.Pod)) {
	key := keyOf(p)
	l.add(at, func(s store) {
		if p := s.pod(key); p != nil {
			edit(p)
			s.putPod(p)
		}
	})
}

func (l *timeline) onNode(at time.Duration, name string, edit func(*v1.Node)) {
	l.add(at, func(s store) {
		if n := s.node(name); n != nil {
			edit(n)
			s.putNode(n)
		}
	})
}

func (l *timeline) taint(name string, at time.Duration) {
	t := v1.Taint{Key: maintenance, Effect: v1.TaintEffectNoExecute}
	if l.one(2) {
		t.TimeAdded = new(stamp(at + happens))
	}
	l.note(tainted, at, "Node/"+name)
	l.onNode(at, name, func(n *v1.Node) {
		if !slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == maintenance }) {
			n.Spec.Taints = append(n.Spec.Taints, t)
		}
	})
	if l.one(2) {
		to := at + l.seconds(15, 200)
		l.note(untainted, to, "Node/"+name)
		l.onNode(to, name, func(n *v1.Node) {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == maintenance })
		})
	}
}

func (l *timeline) replace(p *v1.Pod, at time.Duration) {
	made := p.DeepCopy()
	made.UID = types.UID(fmt.Sprintf("uid-%s-%d", p.Name, at))
	made.CreationTimestamp = stamp(at + happens)
	made.Spec.NodeName = l.names[l.IntN(len(l.names))]
	l.note(replaced, at, "Pod/"+keyOf(p))
	l.add(at, func(s store) {
		if s.pod(keyOf(made)) != nil {
			s.dropPod(keyOf(made))
		}
		s.putPod(made.DeepCopy())
	})
}

func (l *timeline) remove(name string, at time.Duration) {
	l.note(removed, at, "Node/"+name)
	l.add(at, func(s store) {
		if s.node(name) != nil {
			s.dropNode(name)
		}
	})
	if l.one(2) {
		to := at + l.seconds(1, 100)
		l.note(remade, to, "Node/"+name)
		l.add(to, func(s store) {
			if s.node(name) == nil {
				s.putNode(l.newNode(name, types.UID(fmt.Sprintf("uid-%s-%d", name, to)), to+happens))
			}
		})
	}
}

func (l *timeline) label(name string, at time.Duration) {
	switch l.IntN(3) {
	case 0:
		l.note(excluded, at, "Node/"+name)
		l.onNode(at, name, func(n *v1.Node) { n.Labels["node.kubernetes.io/exclude-disruption"] = "" })
	case 1:
		l.note(cordoned, at, "Node/"+name)
		l.onNode(at, name, func(n *v1.Node) { n.Spec.Unschedulable = true })
	case 2:
		l.note(pressed, at, "Node/"+name)
		what := string(pressures[l.seed%len(pressures)]) // by the seed: the random numbers stay the same
		l.onNode(at, name, func(n *v1.Node) { n.Annotations = map[string]string{"pressed": what} })
	}
}
