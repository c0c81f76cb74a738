package garbage

import (
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/reclaim"
)

// The agent never removes its own image: its container protects the image by any reference that the
// runtime reports, in every state of the agent's container, and however full the disk is. All other
// images are removed.
func TestTheAgentsOwnImageStays(t *testing.T) {
	id, digest := "sha256:"+strings.Repeat("ab", 32), "sha256:"+strings.Repeat("cd", 32)
	for how, ref := range map[string]string{
		"by its ID": id, "by CRI-O's ID": strings.TrimPrefix(id, "sha256:"), "by the beginning of it": strings.Repeat("ab", 6),
		"by its name": "localhost/jettison:dev", "by its digest": "localhost/jettison@" + digest,
	} {
		for _, state := range []runtimev1.ContainerState{running, created, exited, unknown} {
			for _, trigger := range []reclaim.Trigger{reclaim.Periodic, reclaim.DiskPressure} {
				t.Run(how+" "+state.String()+" "+string(trigger), func(t *testing.T) {
					n := full(t)
					own := n.image(id, 100)
					own.RepoTags, own.RepoDigests = []string{"localhost/jettison:dev"}, []string{"localhost/jettison@" + digest}
					n.other = 999 // every image must be removed
					n.seen()
					n.sandbox("agent", uidA, true, time.Hour)
					n.container("a", "agent", uidA, state, time.Hour, ref)
					r := n.pass(Everything, trigger)
					for _, removed := range n.removed() {
						if strings.Contains(removed, id) {
							t.Errorf("its own image went: %q", n.removed())
						}
					}
					if len(n.removed()) < 4 {
						t.Errorf("removed %q, want the four others at least: this proves nothing; %q", n.removed(), r.Problems())
					}
				})
			}
		}
	}
}
