package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// maxBesieged limits how much later the agent may kill at p50 while its socket is besieged, as a
// multiple of the time without.
const maxBesieged = 1.2

// BenchmarkReactBesieged measures like BenchmarkReactCrossing, while a thousand clients have
// connections to the agent's socket and each sends at most half of its request, some of 10 MB.
// Trials with and without them alternate, with one agent each time.
func BenchmarkReactBesieged(b *testing.B) {
	r := newReactor(b, vm.Options{MiB: 1536})
	t := newSampledTable(fmt.Sprintf("kernel %s, crossed to kill while the socket is besieged, ms", r.Kernel), "the socket", "p50", "p90", "p99", "max", "count", "wrong")
	outcomes := map[bool][]outcome{}
	for turn := range turns {
		for _, besieged := range []bool{turn%2 == 0, turn%2 != 0} { // alternate the order
			outcomes[besieged] = append(outcomes[besieged], r.besieged(besieged, trials(48)/turns)...)
		}
	}
	p50 := map[bool]time.Duration{}
	for _, besieged := range []bool{false, true} {
		var kill []time.Duration
		wrong := faults{}
		for _, o := range outcomes[besieged] {
			t.sampled(o.Sample)
			wrong.add(o.faults)
			if o.Crossed != 0 && o.killed != 0 {
				kill = append(kill, elapsed(o.Crossed, max(o.killed, o.Crossed)))
			}
		}
		name := map[bool]string{false: "quiet", true: "besieged"}[besieged]
		t.row(append(append([]any{name}, spread(kill)...), wrong)...)
		p50[besieged] = median(kill)
	}
	t.note("p50 besieged / quiet: %.2f, at most %.1f", float64(p50[true])/float64(p50[false]), maxBesieged)
	t.print()
	if float64(p50[true]) > maxBesieged*float64(p50[false]) || p50[false] == 0 {
		b.Errorf("p50 to the kill is %v while the socket is besieged, %v while it is not", p50[true], p50[false])
	}
	reportOnce(b)
}

// median returns p50 as spread has it, or 0 without values.
func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[rank(0.5, len(sorted))]
}

// besieged makes trials with one agent, with its socket besieged or not.
func (r *reactor) besieged(besieged bool, count int) (out []outcome) {
	r.t.Helper()
	k := r.startReacting("")
	if besieged {
		const log = "/var/log/besiege.log"
		r.shell("rm -f " + log)
		pid, err := r.Start(r.ctx, log, "/usr/local/bin/workload", "besiege", guestapi.AgentSocket)
		if err != nil {
			r.t.Fatal(err)
		}
		defer r.shell("kill -9 " + strconv.Itoa(pid))
		r.until("a thousand clients have come", func() error { return r.reads(log, "besieged") })
	}
	// Memory outside of pods makes the node short: a leaking pod has the least CPU weight and would
	// get no CPU time on the emulated machine.
	l := load{name: fmt.Sprint("besieged ", besieged), pod: holdingPod(1, 128*mib), holds: 128 * mib, headroom: 12 * mib}
	for range count {
		out = append(out, r.try(k, l))
	}
	k.stop()
	return out
}
