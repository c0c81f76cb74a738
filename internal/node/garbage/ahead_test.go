package garbage

import (
	"fmt"
	"testing"
	"time"

	"jettison/reclaim"
)

// A list contains the pods of the next steps, and later steps read a new list. Each sandbox with a
// newer one in its pod is removed.
func TestWhatIsListedIsOfThePodsWhoseTurnIsNext(t *testing.T) {
	n, pods, known := newNode(t), 2*maxScope+20, Known{Pods: map[string]reclaim.Phase{}, Synced: true}
	for i := range pods {
		uid := fmt.Sprintf("pod-%04d", i)
		known.Pods[uid] = reclaim.Active
		n.sandbox("old-"+uid, uid, false, 2*time.Hour)
		n.sandbox("new-"+uid, uid, false, time.Hour)
	}
	n.known.Store(&known)
	r := n.pass(Containers, reclaim.Periodic)
	if got := r.Count(Removed); got != pods || len(n.r.Sandboxes) != pods {
		t.Errorf("%d sandboxes went and %d stay, want %d: %v", got, len(n.r.Sandboxes), pods, r.Done[pods-1].Why)
	}
	if lists := n.r.Calls("ListPodSandbox"); lists != 4 { // one for the plan, and one for each maxScope pods of its steps
		t.Errorf("lists of sandboxes = %d, want 4", lists)
	}
	if got := len(n.listed); got != 2*pods {
		t.Errorf("%d sandboxes are remembered, want %d", got, 2*pods)
	}
}
