package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// dead is a removable container, the pod that it belongs to, and its known or inferred creation
// time.
type dead struct {
	*Container
	uid string
	at  time.Time
}

// older orders containers by age, oldest first, and equals by attempt and ID. The kubelet's order
// of equals varies (weakness 31).
func older(a, b dead) int {
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Attempt, b.Attempt),
		strings.Compare(a.ID, b.ID))
}

// planContainers follows the kubelet's evictContainers. It groups dead containers by pod and name.
// It removes the groups of pods that are gone, and the surplus of each other group. If too many
// containers remain in total, each group keeps the same number; then the oldest containers are
// removed. It returns the IDs of the removed containers.
func (w *planner) planContainers() map[string]bool {
	policy, units := w.policy.Container, w.deadGroups()
	keep, removed := units[:0], make([]chosen, 0, len(units))
	var surplus []chosen
	for _, u := range units {
		// Only once all pods are known, even for an evicted pod (evictContainers, allSourcesReady).
		if reason, ok := w.runtimeReason(u[0].uid); ok && w.look.PodsSynced {
			removed = append(removed, chosen{u, reason, podReasonText[reason]})
			continue
		}
		if n := policy.MaxPerPodContainer; n >= 0 && len(u) > n {
			why := fmt.Sprintf("%d dead containers of this name in the pod, the newest %d stay", len(u), n)
			surplus = append(surplus, chosen{u[:len(u)-n], PerContainer, why})
			u = u[len(u)-n:]
		}
		if len(u) > 0 {
			keep = append(keep, u)
		}
	}
	share, last := w.limitTotal(keep)
	groups, n := [][]chosen{removed, surplus, share, last}, 0
	for _, group := range groups {
		for _, of := range group {
			n += len(of.dead)
		}
	}
	most := n
	for i := range w.look.Sandboxes {
		if w.look.Sandboxes[i].NotReady {
			most++ // the plan may remove it too
		}
	}
	w.growSteps(most)
	gone := make(map[string]bool, n)
	for _, group := range groups {
		first := len(w.plan.Steps)
		for _, of := range group {
			w.remove(of)
		}
		slices.SortFunc(w.plan.Steps[first:], oldest)
	}
	for i := range w.plan.Steps {
		gone[w.plan.Steps[i].ID] = true
	}
	return gone
}

// chosen are containers to remove for one reason.
type chosen struct {
	dead   []dead
	reason Reason
	why    string
}

// oldest orders steps by age, oldest first.
func oldest(a, b Step) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) }

// limitTotal reduces the dead containers of all groups to MaxContainers.
func (w *planner) limitTotal(units [][]dead) (share, last []chosen) {
	most, n := w.policy.Container.MaxContainers, 0
	for _, u := range units {
		n += len(u)
	}
	if most < 0 || n <= most {
		return nil, nil
	}
	each := max(1, most/len(units))
	why := fmt.Sprintf("%d dead containers, at most %d: each of %d names in pods keeps its newest %d",
		n, most, len(units), each)
	var rest []dead
	for _, u := range units {
		if len(u) > each {
			share = append(share, chosen{u[:len(u)-each], EqualShare, why})
			u = u[len(u)-each:]
		}
		rest = append(rest, u...)
	}
	if n = len(rest); n > most {
		slices.SortFunc(rest, older)
		last = []chosen{{rest[:n-most], Oldest,
			fmt.Sprintf("%d dead containers, at most %d: it is among the oldest", n, most)}}
	}
	return share, last
}

// deadGroups returns the dead containers by pod and name, each group oldest first.
func (w *planner) deadGroups() (out [][]dead) {
	all := make([]dead, 0, len(w.look.Containers))
	for i := range w.look.Containers {
		c := &w.look.Containers[i]
		if !w.isDead(c) {
			continue
		}
		uid, why := w.owner(c)
		at, known := w.creation(c)
		if _, gone := w.runtimeReason(uid); why == "" && !known && (!gone || !w.look.PodsSynced) {
			why = unknownCreation
		}
		if why != "" {
			w.addLeft(fmt.Sprintf("container %.64q", c.ID), why)
			continue
		}
		all = append(all, dead{c, uid, at})
	}
	slices.SortFunc(all, func(a, b dead) int {
		return cmp.Or(strings.Compare(a.uid, b.uid), strings.Compare(a.Name, b.Name), older(a, b))
	})
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && all[j].uid == all[i].uid && all[j].Name == all[i].Name {
			j++
		}
		out = append(out, all[i:j:j])
		i = j
	}
	return out
}

// unknownCreation is the reason why an object is left whose age decides about its removal.
const unknownCreation = "its creation time is unknown"

// Age returns the time since the creation of a container, or since it was first seen if that is
// shorter or the creation time is unknown. known is false if both are.
func (c *Container) Age(now time.Time) (age time.Duration, known bool) {
	switch {
	case c.CreatedAt.IsZero() && c.Seen.IsZero():
		return 0, false
	case c.Seen.IsZero():
		return now.Sub(c.CreatedAt), true
	case c.CreatedAt.IsZero():
		return now.Sub(c.Seen), true
	}
	return min(now.Sub(c.CreatedAt), now.Sub(c.Seen)), true
}

// isDead reports whether a container is not running and old enough. A created container that was
// never started may be about to start (weakness 19), especially if the runtime does not report its
// creation time.
func (w *planner) isDead(c *Container) bool {
	age, known := c.Age(w.now)
	policy := w.policy.Container
	switch c.State {
	case Exited, Unknown:
		if !known {
			w.addLeft(fmt.Sprintf("container %.64q", c.ID), unknownCreation)
		}
		return known && age >= policy.MinAge
	case Created:
		if c.CreatedAt.IsZero() {
			w.addLeft(fmt.Sprintf("container %.64q", c.ID), unknownCreation)
		}
		return age >= policy.MinAge && age >= policy.CreatedMinAge && !c.CreatedAt.IsZero()
	}
	return false
}

// owner returns the UID of a container's pod, or the reason why it is unknown. The kubelet uses
// only the label, and treats a container without the label as if its pod were gone.
func (w *planner) owner(c *Container) (uid, why string) {
	s := w.sandboxes[c.SandboxID]
	switch {
	case s == nil || s.PodUID == "":
		if c.PodUID == "" {
			return "", "neither its label nor its sandbox names its pod"
		}
		return c.PodUID, ""
	case c.PodUID != "" && c.PodUID != s.PodUID:
		return "", fmt.Sprintf("its label names pod %.64q, its sandbox pod %.64q", c.PodUID,
			s.PodUID)
	}
	return s.PodUID, ""
}

func (w *planner) remove(c chosen) {
	for _, d := range c.dead {
		stop, why := d.State == Unknown, c.why
		if stop {
			why = w.intern(c.why + "; the runtime does not know whether it runs: stop it first")
		}
		w.plan.Steps = append(w.plan.Steps, Step{
			Action: RemoveContainer, ID: d.ID, PodUID: d.uid, Name: d.Name, StopFirst: stop,
			Since: d.at, Reason: c.reason, Why: why,
		})
	}
}
