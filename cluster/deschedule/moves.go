package deschedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/model"
)

// PastMove is an earlier eviction of an owner's pod by preference or utilization.
type PastMove struct {
	Namespace string
	Owner     types.UID
	Node      string // the pod was evicted from it
	// Newest is the latest creation time of the owner's pods when the pod was evicted. It is a time of
	// the API server, as those of its replacements, so clocks need not agree.
	Newest time.Time
	At     time.Time
}

// replacementDelay is the maximum time from an eviction to its replacement: the grace period of a
// StatefulSet's pod, and the difference of two clocks. Later pods were added for other reasons.
const replacementDelay = time.Hour

// madeReplacement reports whether a pod of the owner may be a replacement.
func (m *PastMove) madeReplacement(p *model.Pod) bool {
	return p.CreationTimestamp.After(m.Newest) && p.CreationTimestamp.Time.Before(m.At.Add(replacementDelay))
}

// moves are the past moves of owners, in order, and the first one of each without effect.
type moves struct {
	past        map[owner][]*PastMove
	ineffective map[owner]ineffectiveMove
}

// ineffectiveMove is a move without effect.
type ineffectiveMove struct {
	at time.Time
	// mark is the last mark before the proposal that showed the lack of effect; -1: the snapshot
	// shows it.
	mark int
}

// newMoves finds the moves without effect: a replacement is on the node from which the pod was
// moved.
func newMoves(s *Snapshot, c *model.Cluster) moves {
	m := moves{past: map[owner][]*PastMove{}, ineffective: map[owner]ineffectiveMove{}}
	if len(s.Moves) == 0 {
		return m
	}
	for i := range s.Moves {
		key := owner{s.Moves[i].Namespace, s.Moves[i].Owner}
		m.past[key] = append(m.past[key], &s.Moves[i])
	}
	for _, past := range m.past { // reasons name the first
		slices.SortFunc(past, func(a, b *PastMove) int { return a.At.Compare(b.At) })
	}
	for _, p := range c.Pods() {
		if p.Node == nil || p.Ended || isReplacement(p) {
			continue
		}
		for _, o := range ownersOf(p) {
			for _, past := range m.past[o] {
				known, ok := m.ineffective[o]
				if past.Node == p.Node.Name && past.madeReplacement(p) &&
					(!ok || past.At.Before(known.at)) {
					m.ineffective[o] = ineffectiveMove{past.At, -1}
				}
			}
		}
	}
	return m
}

// movedWithoutEffect returns the reason to keep a pod because an earlier move of its owner had no
// effect; empty: none. A replacement that a strategy would move once more shows that, too.
func (r *run) movedWithoutEffect(p *model.Pod) string {
	if len(r.moves.past) == 0 || isReplacement(p) {
		return ""
	}
	for i := range p.OwnerReferences {
		o := ownerOf(p, i)
		for _, past := range r.moves.past[o] {
			if _, known := r.moves.ineffective[o]; !known && past.madeReplacement(p) {
				r.moves.ineffective[o] = ineffectiveMove{past.At, len(r.marks) - 1}
			}
		}
		if ineffective, ok := r.moves.ineffective[o]; ok {
			return fmt.Sprintf("an earlier move of a pod of %s %s had no effect (%s)",
				p.OwnerReferences[i].Kind, p.OwnerReferences[i].Name,
				ineffective.at.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// pastMoves returns what later plans need to know about the move of a pod.
func (r *run) pastMoves(p *model.Pod) (out []PastMove) {
	for i := range p.OwnerReferences {
		newest := p.CreationTimestamp.Time
		for _, other := range r.cluster.OwnedPods(p, i) {
			if !isReplacement(other) && other.CreationTimestamp.After(newest) {
				newest = other.CreationTimestamp.Time
			}
		}
		out = append(out, PastMove{Namespace: p.Namespace, Owner: p.OwnerReferences[i].UID,
			Node: p.Node.Name, Newest: newest, At: r.now})
	}
	return out
}

// isReplacement reports whether a plan made the pod.
func isReplacement(p *model.Pod) bool { return strings.HasSuffix(p.Name, replacementSuffix) }
