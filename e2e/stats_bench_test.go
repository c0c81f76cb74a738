package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// rounds is the number of rounds of package stats' benchmarks: enough for a p50 that is stable
// across runs.
const rounds = "30x"

// measureInGuest runs a benchmark of a package in the guest and prints its tables.
func (n *node) measureInGuest(pkg, name string) {
	n.t.Helper()
	out, err := n.RunTests(n.ctx, pkg, "-test.run=^$", "-test.bench=^"+name+"$", "-test.benchtime="+rounds, "-test.timeout=0")
	if err != nil {
		n.t.Fatal(err)
	}
	if !strings.Contains(out, "PASS") || strings.Contains(out, "SKIP") {
		n.t.Fatalf("%s: want PASS and nothing skipped:\n%s", name, out)
	}
	fmt.Printf("\nkernel %s, %s of %s\n%s", n.Kernel, name, pkg, out)
}

// BenchmarkMemoryView compares the memory view with raw reads and with the cgroup readers of other
// agents.
func BenchmarkMemoryView(b *testing.B) {
	n := startNode(b)
	n.measureInGuest("./stats/read", "BenchmarkMemoryView")
	for b.Loop() { // the guest does the rounds; a benchmark that never loops would run twice
	}
}

// BenchmarkFullSummary compares the full look at 110 pods of two containers with the runtime's own
// statistics. Starting the pods takes most of its time.
func BenchmarkFullSummary(b *testing.B) {
	n := startNodeWith(b, vm.Options{MiB: 6144})
	for i := range 110 {
		pod := vm.NewPod("pod"+strconv.Itoa(i), "", "", "")
		// Not the workload: the heartbeats of 220 containers would dominate the measurement on the
		// emulated core.
		pod.Spec.Containers = []v1.Container{{Name: "first", Image: vm.ImagePause}, {Name: "second", Image: vm.ImagePause}}
		n.run(pod)
		if i%10 == 9 {
			b.Logf("%6.1f s  %d pods run", b.Elapsed().Seconds(), i+1)
		}
	}
	n.measureInGuest("./stats/read", "BenchmarkLiveSummary")
	for b.Loop() { // as above
	}
}
