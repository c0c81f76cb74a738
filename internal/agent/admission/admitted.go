package admission

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
)

// admittedLifetime limits how long the resources of an admitted pod are reserved until the loop sees the
// pod, which takes some tens of milliseconds. A pod that is missing by then did not start.
const admittedLifetime = 10 * time.Second

// maxAdmitted limits the admitted pods. The runtime starts a few at a time.
const maxAdmitted = 256

// admittedPods are admitted pods that the snapshot may lack. Without them two successive pods could
// get the same free resources.
type admittedPods []reservation

type reservation struct {
	pod   admit.Held
	until time.Time
}

// keep reserves resources for a pod. A pod without a UID gets no reservation, because the loop
// could not match the pod with those of the runtime.
func (l *admittedPods) keep(now time.Time, pod admit.Held) {
	if pod.UID == "" {
		return
	}
	l.drop(string(pod.UID))
	if len(*l) >= maxAdmitted {
		*l = slices.Delete(*l, 0, 1)
	}
	*l = append(*l, reservation{pod, now.Add(admittedLifetime)})
}

func (l *admittedPods) drop(uid string) {
	*l = slices.DeleteFunc(*l, func(k reservation) bool { return k.pod.UID == types.UID(uid) })
}

// reservations returns the node's reservations plus those of admitted pods, which outrank the others,
// because they are about to run: no other pod may claim their resources. It drops expired
// reservations, and those of pods that n contains.
func (l *admittedPods) reservations(now time.Time, n *admit.NodeState) []admit.Held {
	*l = slices.DeleteFunc(*l, func(k reservation) bool {
		return !now.Before(k.until) ||
			slices.ContainsFunc(n.Pods, func(h admit.Held) bool { return h.UID == k.pod.UID })
	})
	if len(*l) == 0 {
		return n.Reservations
	}
	out := slices.Clone(n.Reservations)
	for _, k := range *l {
		if at := slices.IndexFunc(out, func(h admit.Held) bool { return h.UID == k.pod.UID }); at >= 0 {
			out[at].Reserved, out[at].Pending = false, false
		} else {
			out = append(out, k.pod)
		}
	}
	return out
}
