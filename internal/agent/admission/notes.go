package admission

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// notes hold the reasons of failed preemptions, for the next refusal of the same pod. The loop
// writes them, the gate reads them. The zero value is empty.
type notes struct {
	mu    sync.Mutex
	byUID map[types.UID]note // mu guards it
}

type note struct {
	text  string
	until time.Time
}

// set replaces the note on a pod; an empty text removes it.
func (n *notes) set(now time.Time, uid types.UID, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.byUID, func(_ types.UID, old note) bool { return !now.Before(old.until) })
	if text == "" {
		delete(n.byUID, uid)
		return
	}
	if n.byUID == nil || len(n.byUID) >= maxNotes {
		n.byUID = map[types.UID]note{}
	}
	n.byUID[uid] = note{text, now.Add(noteLifetime)}
}

// get returns the note on a pod; empty without one.
func (n *notes) get(now time.Time, uid types.UID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.byUID[uid]; now.Before(old.until) {
		return old.text
	}
	return ""
}
