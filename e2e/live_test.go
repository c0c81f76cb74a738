package e2e

import (
	"strings"
	"testing"
)

// The live tests of the packages need what a build machine lacks: root on a pure cgroup v2 hierarchy. They run in the guest,
// all of them. None takes a minute; one that hangs says where after five.
func TestLiveTestsOfThePackages(t *testing.T) {
	const live, long = "^TestLive", "VeryFarDown|TooLongForTheMemory"
	n := startNode(t)
	for _, of := range []struct{ pkg, run string }{
		{"./cgroup", live}, {"./stats/read", live}, {"./stats/read/network", live}, {"./internal/node/podfiles", live}, {"./internal/node/kill", live}, {"./internal/agent/squeeze", live},
		{"./internal/node/selfprotect", live}, {"./internal/node/limits", live},
		// That the kernel kills nobody for a line of /proc takes CAP_SYS_RESOURCE, and shows in a memory cgroup only.
		{"./seqfile", long}, {"./stats/read/openfiles", long}, {"./stats/read/mounts", long}, {"./internal/node/podfiles", long},
	} {
		out, err := n.RunTests(n.ctx, of.pkg, "-test.run="+of.run, "-test.v", "-test.timeout=5m")
		switch {
		case err != nil:
			t.Error(err)
		case !strings.Contains(out, "PASS") || strings.Contains(out, "SKIP") || strings.Contains(out, "NOT TESTED"):
			t.Errorf("%s %s: want PASS and nothing skipped:\n%s", of.pkg, of.run, out)
		default:
			t.Logf("%s:\n%s", of.pkg, out)
		}
	}
}
