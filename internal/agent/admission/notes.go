package admission

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
)

// notes hold the reasons of failed preemptions, for the next refusal of the same pod or of its
// controller's next pod. The loop writes them, the gate reads them. The zero value is empty.
type notes struct {
	mu    sync.Mutex
	byKey map[types.UID]note // mu guards it
}

type note struct {
	text  string
	until time.Time
}

// noteKey returns the key of a pod's note: the UID of its controller, or its own.
func noteKey(pod *admit.Held) types.UID { return cmp.Or(pod.Controller, pod.UID) }

// set replaces a note; an empty text removes it.
func (n *notes) set(now time.Time, key types.UID, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.byKey, func(_ types.UID, old note) bool { return !now.Before(old.until) })
	if text == "" {
		delete(n.byKey, key)
		return
	}
	if n.byKey == nil || len(n.byKey) >= maxNotes {
		n.byKey = map[types.UID]note{}
	}
	n.byKey[key] = note{text, now.Add(noteLifetime)}
}

// get returns a note; empty without one.
func (n *notes) get(now time.Time, key types.UID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.byKey[key]; now.Before(old.until) {
		return old.text
	}
	return ""
}
