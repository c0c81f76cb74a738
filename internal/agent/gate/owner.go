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

// Owner is what brings a pod back to this node under another UID: its controller, as its object
// tells. The zero value is none.
type Owner struct {
	Kind string // DaemonSet, StatefulSet, ...
	UID  string // of the controller
	// Namespace and Name are the pod's: all controllers but a DaemonSet, which has one pod on a node,
	// bring a pod back under its name if they bring it back here. A ReplicaSet's new pod has a new
	// name and is another pod, on whatever node.
	Namespace, Name string
}

// kindDaemonSet is the kind whose pods come back under other names.
const kindDaemonSet = "DaemonSet"

// key is what it is held off by; empty: it is not.
func (o Owner) key() string {
	switch {
	case o.UID == "" || o.Name == "":
		return ""
	case o.Kind == kindDaemonSet:
		return nri.DaemonSetKey(o.Namespace, o.Name)
	}
	return nri.PodKey(o.Namespace, o.Name)
}

// ofOwner tells a key of owners from a UID.
func ofOwner(key string) bool {
	return strings.HasPrefix(key, nri.ByDaemonSet) || strings.HasPrefix(key, nri.ByPod)
}

// reason is why a pod is kept out that it has made in place of one that was evicted.
func (o Owner) reason(message string) string {
	return fmt.Sprintf("the pod that it takes the place of (%s/%s of the same %s) was evicted from "+
		"this node: %s", o.Namespace, o.Name, o.Kind,
		message)
}

// Follow keeps out pods that a DaemonSet has made in place of one that is kept out: where a runtime
// hands on no labels their objects tell whose they are. They are kept out by their names, which the
// runtime tells: who hands over objects may say anything of a UID that is to come, and would keep
// out any pod. changed: some are kept out now that were not.
func (h *HoldOffs) Follow(now time.Time, pods iter.Seq[Owner]) (changed bool) {
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
		key, was := nri.PodKey(owner.Namespace, owner.Name), h.held[owner.key()]
		// the one that was evicted, by its UID
		if own := h.shared.All()[key]; now.Before(own.Until) || was.owner.Name == owner.Name {
			continue
		}
		h.held[key] = was
		h.shared.Set(now, key, hold)
		changed = true
	}
	return changed
}

// mostShown bounds the hold-offs that a State has.
const mostShown = 100

// State are the pods that are kept out, by their keys.
func (h *HoldOffs) State(now time.Time) (out []api.HoldState) {
	all := h.shared.All()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		hold, was := all[key], h.held[key]
		if !now.Before(hold.Until) || len(out) == mostShown {
			continue
		}
		state := api.HoldState{UID: key, Until: hold.Until, Times: max(was.times, 1), Reason: hold.Reason}
		if owner := was.owner; owner.UID != "" {
			state.Owner = &api.HoldOwner{Kind: owner.Kind, UID: owner.UID, Namespace: owner.Namespace,
				Pod: owner.Name}
		}
		if ofOwner(key) {
			state.UID = ""
		}
		out = append(out, state)
	}
	return out
}
