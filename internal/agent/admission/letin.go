package admission

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
)

// keptFor is how long room is kept for a pod that was let in until the loop knows it: that takes
// some tens of milliseconds. What is not there by then did not start.
const keptFor = 10 * time.Second

// maxLetIn bounds the pods that were let in. The runtime starts a few at a time.
const maxLetIn = 256

// letIn are pods that were let in and that the snapshot may not have yet. Two that ask one after
// the other must not both have the room that only one of them finds.
type letIn []kept

type kept struct {
	pod   admit.Held
	until time.Time
}

// keep keeps room for a pod. Of a pod without a UID nobody could tell when it is there.
func (l *letIn) keep(now time.Time, pod admit.Held) {
	if pod.UID == "" {
		return
	}
	l.drop(string(pod.UID))
	if len(*l) >= maxLetIn {
		*l = slices.Delete(*l, 0, 1)
	}
	*l = append(*l, kept{pod, now.Add(keptFor)})
}

func (l *letIn) drop(uid string) {
	*l = slices.DeleteFunc(*l, func(k kept) bool { return k.pod.UID == types.UID(uid) })
}

// beside are the promises of a node with the pods that were let in: what is kept for these is more
// than a promise, for they are about to run, and nobody else may have it. What the node has by now
// is forgotten, as is what is too old.
func (l *letIn) beside(now time.Time, n *admit.NodeState) []admit.Held {
	*l = slices.DeleteFunc(*l, func(k kept) bool {
		return !now.Before(k.until) ||
			slices.ContainsFunc(n.Pods, func(h admit.Held) bool { return h.UID == k.pod.UID })
	})
	if len(*l) == 0 {
		return n.Promised
	}
	out := slices.Clone(n.Promised)
	for _, k := range *l {
		if at := slices.IndexFunc(out, func(h admit.Held) bool { return h.UID == k.pod.UID }); at >= 0 {
			out[at].Kept = false
		} else {
			out = append(out, k.pod)
		}
	}
	return out
}
