package e2e

import (
	"strings"
	"testing"
)

// The live tests of the packages need root on a pure cgroup v2 hierarchy, which a build machine
// lacks. All of them run in the guest. None takes a minute; one that hangs prints its place after
// five.
func TestLiveTestsOfThePackages(t *testing.T) {
	const live, long = "^TestLive", "VeryFarDown|TooLongForTheMemory"
	n := startNode(t)
	for _, of := range []struct{ pkg, run string }{
		{"./cgroup", live}, {"./stats/read", live}, {"./stats/read/network", live}, {"./internal/node/podfiles", live}, {"./internal/node/kill", live}, {"./internal/agent/squeeze", live},
		{"./internal/node/selfprotect", live}, {"./internal/node/limits", live},
		// Protection from an OOM kill for a long line of /proc needs CAP_SYS_RESOURCE, and shows
		// only in a memory cgroup.
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
