package admit

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// ReservationPeriod is the duration of a reservation after a preemption. It must suffice for the
// caller to request admission again and for the pod to start.
const ReservationPeriod = 30 * time.Second

// Reservations holds the reservations for pods that do not run yet. The zero value is empty. It is
// not safe for concurrent use.
type Reservations struct {
	kept map[types.UID]reservedPod
}

type reservedPod struct {
	pod   Held
	until time.Time
}

// Reserve reserves resources for a pod, or renews its reservation. It drops the reservation of an
// earlier attempt (Held.PassesTo). A pod without a UID cannot be recognized later: Reserve does
// nothing for it and returns false.
func (p *Reservations) Reserve(now time.Time, pod Held) bool {
	if pod.UID == "" {
		return false
	}
	if p.kept == nil {
		p.kept = map[types.UID]reservedPod{}
	}
	maps.DeleteFunc(p.kept, func(uid types.UID, old reservedPod) bool {
		return uid != pod.UID && old.pod.PassesTo(&pod)
	})
	pod.Reserved = true
	pod.Promised = pod.Promised || p.kept[pod.UID].pod.Promised
	p.kept[pod.UID] = reservedPod{pod, now.Add(ReservationPeriod)}
	return true
}

// Drop ends the reservation of a pod that runs, or will not run.
func (p *Reservations) Drop(uid types.UID) { delete(p.kept, uid) }

// Until returns the end of a pod's reservation; zero: no reservation.
func (p *Reservations) Until(uid types.UID) time.Time { return p.kept[uid].until }

// UIDs returns the pods with reservations in any order, including expired ones not yet removed.
func (p *Reservations) UIDs() []types.UID { return slices.Collect(maps.Keys(p.kept)) }

// Held removes expired reservations and returns the others, by UID.
func (p *Reservations) Held(now time.Time) []Held {
	var out []Held
	for uid, kept := range p.kept {
		if !now.Before(kept.until) {
			delete(p.kept, uid)
			continue
		}
		out = append(out, kept.pod)
	}
	slices.SortFunc(out, func(a, b Held) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// Outranks reports whether pod h may use the reservation of other: h is critical, both priorities
// are known, and the priority of h is higher. At equal priority the existing reservation stays. A
// pod without a UID outranks no reservation, because it could be admitted twice.
func (h *Held) Outranks(other *Held) bool {
	return h.UID != "" && h.Critical() && h.Priority.OK && other.Priority.OK &&
		h.Priority.V > other.Priority.V
}

// PassesTo reports whether pod h counts as an earlier attempt at the critical pod next, and passes its
// reservation on. The caller of the runtime creates a pod again under the same name, a controller
// under a new one: its next pod is a retry, or another replica. The replicas of a controller therefore
// have one reservation at a time, except those that a client was promised.
func (h *Held) PassesTo(next *Held) bool {
	return h.hasName(next.Namespace, next.Name) || !h.Promised && next.Critical() && h.Controller != "" &&
		h.Controller == next.Controller && h.Namespace == next.Namespace
}

// mayUseReservation reports whether the pod may use the resources of reservation h: it is critical,
// and h belongs to an earlier attempt at the same pod or is outranked.
func (p *incomingPod) mayUseReservation(h *Held) bool {
	if !h.Reserved || !critical(p.Pod) {
		return false
	}
	rank := p.rank()
	return h.PassesTo(rank) || !p.untrustedPriority && rank.Outranks(h)
}

// rank returns the pod with the fields that Outranks and PassesTo read. A pod whose priority is
// untrusted has no controller, because its source could name any.
func (p *incomingPod) rank() *Held {
	out := &Held{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Static: static(p.Pod)}
	if !p.untrustedPriority {
		out.Controller = p.controller
	}
	if p.Spec.Priority != nil {
		out.Priority = stats.Some(*p.Spec.Priority)
	}
	return out
}

// Outranked returns the reservations that admitting the pod would break, because the node cannot
// fit both. The reservations of the most critical pods stay if possible. It checks only resources
// and ports, and no other reason to reject the pod.
func Outranked(p PodAttributes, n NodeState) (out []Held) {
	pod := incoming(p)
	if pod.untrustedPriority || !critical(pod.Pod) {
		return nil
	}
	rank, ports, lower := pod.rank(), pod.ports, []Held(nil)
	stay := slices.DeleteFunc(slices.Clone(n.Reservations), func(h Held) bool {
		if h.Reserved && rank.Outranks(&h) {
			lower = append(lower, h)
			return true
		}
		return false
	})
	slices.SortStableFunc(lower,
		func(a, b Held) int { return cmp.Compare(b.Priority.V, a.Priority.V) })
	for _, h := range lower {
		n.Reservations = append(stay, h)
		n.Reservations[len(stay)].Reserved = false // others omits only reserved pods
		if others := n.others(pod); len(shortages(pod.requests, others, &n)) > 0 ||
			portsConflict(ports, others) {
			out = append(out, h)
			continue
		}
		stay = n.Reservations
	}
	return out
}
