package e2e

import (
	"strings"
	"testing"
)

// The live tests of the packages need what a build machine lacks: root on a pure cgroup v2 hierarchy. They run in the guest,
// all of them. None takes a minute; one that hangs says where after five.
func TestLiveTestsOfThePackages(t *testing.T) {
	n := startNode(t)
	for _, pkg := range []string{"./cgroup", "./stats/read", "./internal/remove", "./internal/kill", "./internal/squeeze", "./internal/protect"} {
		out, err := n.RunTests(n.ctx, pkg, "-test.run=^TestLive", "-test.v", "-test.timeout=5m")
		switch {
		case err != nil:
			t.Error(err)
		case !strings.Contains(out, "PASS") || strings.Contains(out, "SKIP"):
			t.Errorf("%s: want PASS and nothing skipped:\n%s", pkg, out)
		default:
			t.Logf("%s:\n%s", pkg, out)
		}
	}
}
