package e2e

import (
	"fmt"
	"testing"
	"time"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// BenchmarkReactSampler prints the cost of the guest's sampler and the intervals between its
// samples, with the memory far above the threshold, near it, and below it: the error of all
// measurements with it.
func BenchmarkReactSampler(b *testing.B) {
	n := newReactor(b, vm.Options{})
	pod := n.run(vm.NewPod("holder", "", "", "alloc -size 32Mi"))
	table := newTable(fmt.Sprintf("kernel %s, the guest's sampler, each 1 ms for 3 s", n.Kernel), "node", "available MiB", "samples", "gap p99 ms", "gap max ms", "cost mean µs", "cost max ms", "dear reads", "off by KiB")
	for _, c := range []struct {
		name      string
		available int64
	}{{"far above the threshold", 300 * mib}, {"just above it", 101 * mib}, {"below it", 97 * mib}} {
		if _, err := n.Ballast(n.ctx, guestapi.BallastRequest{Available: c.available}); err != nil {
			b.Fatal(err)
		}
		stop, err := n.Sample(n.ctx, guestapi.SampleRequest{Threshold: defaultThreshold, Cgroup: pod.Cgroup})
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(3 * time.Second) // the measured interval is at rest
		s, err := stop()
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range s.Refused {
			table.note("refused: %s", r)
		}
		table.row(c.name, s.Lowest/mib, s.Samples, ms(s.GapP99), ms(s.MaxGap), s.MeanCost/1000, ms(s.MaxCost), s.Dear, s.MaxOff>>10)
	}
	table.print()
}
