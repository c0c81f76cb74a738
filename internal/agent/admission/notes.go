package admission

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// notes are why no room could be made for pods, for the runtime to be told when it asks again. The
// loop writes, the plugin reads. The zero value has none.
type notes struct {
	mu sync.Mutex
	by map[types.UID]note // mu guards it
}

type note struct {
	text  string
	until time.Time
}

// set puts a note in the place of the one before; an empty one takes that back.
func (n *notes) set(now time.Time, uid types.UID, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.by, func(_ types.UID, old note) bool { return !now.Before(old.until) })
	if text == "" {
		delete(n.by, uid)
		return
	}
	if n.by == nil || len(n.by) >= maxNotes {
		n.by = map[types.UID]note{}
	}
	n.by[uid] = note{text, now.Add(noteFor)}
}

// of is the note on a pod; empty: there is none.
func (n *notes) of(now time.Time, uid types.UID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.by[uid]; now.Before(old.until) {
		return old.text
	}
	return ""
}
