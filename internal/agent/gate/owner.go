package gate

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"jettison/api"
	"jettison/cri/nri"
)

// Owner is the controller that brings a pod back to this node under another UID, from its object.
// The zero value is no owner.
type Owner struct {
	Kind string // DaemonSet, StatefulSet, ...
	UID  string // of the controller
	// Namespace and Name are the pod's. A DaemonSet has one pod on a node. Other controllers bring a
	// pod back under its name if they bring it back here: a ReplicaSet's new pod has a new name and is
	// another pod, on any node.
	Namespace, Name string
}

// kindDaemonSet is the kind whose pods come back under other names.
const kindDaemonSet = "DaemonSet"

// key returns the key of the owner's hold-off; empty without one.
func (o Owner) key() string {
	switch {
	case o.UID == "" || o.Name == "":
		return ""
	case o.Kind == kindDaemonSet:
		return nri.DaemonSetKey(o.Namespace, o.Name)
	}
	return nri.PodKey(o.Namespace, o.Name)
}

// isOwnerKey reports whether a key is an owner's instead of a UID.
func isOwnerKey(key string) bool {
	return strings.HasPrefix(key, nri.ByDaemonSet) || strings.HasPrefix(key, nri.ByPod)
}

// reason returns why a pod is refused that the owner created in place of an evicted one.
func (o Owner) reason(message string) string {
	return fmt.Sprintf("it replaces pod %s/%s of the same %s, which was evicted from this node: %s",
		o.Namespace, o.Name, o.Kind,
		message)
}

// HoldReplacements starts hold-offs of pods that a DaemonSet created in place of an evicted one. It
// is needed for runtimes that do not pass labels, where only objects show the owner. The hold-offs
// use the pods' names, which the runtime reports: a client could claim any UID in an object, and so
// have any pod refused. changed: at least one hold-off is new.
func (h *HoldOffs) HoldReplacements(now time.Time, pods iter.Seq[Owner]) (changed bool) {
	held := map[string]nri.Hold{}
	for key, hold := range h.shared.All() {
		if strings.HasPrefix(key, nri.ByDaemonSet) && now.Before(hold.Until) {
			held[key] = hold
		}
	}
	if len(held) == 0 {
		return false
	}
	for owner := range pods {
		hold, is := held[owner.key()]
		if !is {
			continue
		}
		key, was := nri.PodKey(owner.Namespace, owner.Name), h.histories[owner.key()]
		// skip the evicted pod itself, which has a hold-off by UID
		if own := h.shared.All()[key]; now.Before(own.Until) || was.owner.Name == owner.Name {
			continue
		}
		h.histories[key] = was
		h.shared.Set(now, key, hold)
		changed = true
	}
	return changed
}

// maxShown limits the hold-offs in a State.
const maxShown = 100

// State returns the hold-offs, sorted by their keys.
func (h *HoldOffs) State(now time.Time) (out []api.HoldState) {
	all := h.shared.All()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		hold, was := all[key], h.histories[key]
		if !now.Before(hold.Until) || len(out) == maxShown {
			continue
		}
		state := api.HoldState{UID: key, Until: hold.Until, Times: max(was.times, 1), Reason: hold.Reason}
		if owner := was.owner; owner.UID != "" {
			state.Owner = &api.HoldOwner{Kind: owner.Kind, UID: owner.UID, Namespace: owner.Namespace,
				Pod: owner.Name}
		}
		if isOwnerKey(key) {
			state.UID = ""
		}
		out = append(out, state)
	}
	return out
}
