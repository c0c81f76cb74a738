package garbage

import (
	"fmt"
	"testing"
	"time"

	"jettison/reclaim"
)

// Lists of a moment ago have all of the pods whose turn is next, and are made anew for those that come later: each sandbox goes for which
// there is a newer one.
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
	if lists := n.r.Calls("ListPodSandbox"); lists != 4 { // for the plan, and for each of its parts
		t.Errorf("%d lists", lists)
	}
	if got := len(n.listed); got != 2*pods {
		t.Errorf("%d sandboxes are remembered, want %d", got, 2*pods)
	}
}
