package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"jettison/api"
	"jettison/e2e/vm"
)

// Limits of the runtime's wait for the gate, and of the increase of a pod's start time by it, as a
// share.
const (
	maxAnswerP50 = time.Millisecond
	maxAnswerP99 = 10 * time.Millisecond
	maxSlower    = 0.05
)

// gateLoads are the loads under which the gate's answers are measured.
var gateLoads = []struct {
	name string
	pods []string // behaviours of the load's pods
}{
	{"quiet", nil},
	{"all CPUs are taken", []string{"spin -threads 4", "spin -threads 4"}},
	{"a pod leaks again and again", []string{"alloc -rate 50Mi -size 4Gi"}},
}

// BenchmarkGate prints how long the runtime waits for the gate, by the agent's own clock: on an
// idle node, on one with busy CPUs, and on one with repeated evictions.
func BenchmarkGate(b *testing.B) {
	n := startNode(b)
	t := newTable("kernel "+n.Kernel+", how long the runtime waits for the gate, µs", "the node", "p50", "p99", "max", "answers")
	for _, load := range gateLoads {
		n.startAgent(config("maxPods: 1000"))
		n.agentLogs("runtime events connected", 1)
		g := n.answersUnder(load.pods)
		t.row(load.name, g.P50.Microseconds(), g.P99.Microseconds(), g.Max.Microseconds(), g.Count)
		if g.P50 > maxAnswerP50 || g.P99 > maxAnswerP99 || g.Count == 0 {
			b.Errorf("%s: latency of the gate's answers = %+v, want at most %v and %v", load.name, g, maxAnswerP50, maxAnswerP99)
		}
		if err := n.agent.Remove(n.ctx); err != nil {
			b.Fatal(err)
		}
	}
	t.note("by the agent's clock, from when a question was read to when its answer was written; p50 and p99 up to a tenth too long")
	t.print()
	reportOnce(b)
}

// answersUnder starts pods in sequence while other pods are a load.
func (n *node) answersUnder(load []string) api.LatencyState {
	n.t.Helper()
	var heavy []*vm.Pod
	defer func() {
		for _, p := range heavy {
			if err := p.Remove(n.ctx); err != nil {
				n.t.Fatal(err)
			}
		}
	}()
	start := func(i int, behaviour string) {
		// Not BestEffort: the gate admits it under pressure.
		p := n.run(vm.NewPod(fmt.Sprint("load-", i, "-", len(heavy)), "1Mi", "", behaviour))
		p.Expected = vm.Any
		heavy = append(heavy, p)
	}
	for i, behaviour := range load {
		start(i, behaviour)
	}
	for range trials(100) {
		for i, behaviour := range load {
			if alive, err := heavy[len(heavy)-len(load)+i].Populated(n.ctx); err == nil && !alive {
				start(i, behaviour)
			}
		}
		n.passing("4Mi")
	}
	return n.state().Gate.Answers
}

// passing starts a pod, removes it, and returns how long the start took.
func (n *node) passing(request string) time.Duration {
	n.t.Helper()
	p := n.run(vm.NewPod("passing", request, "", "sleep"))
	p.Expected = vm.Any
	if err := p.Remove(n.ctx); err != nil {
		n.t.Fatal(err)
	}
	return p.Took
}

// BenchmarkStartsWithTheGate starts pods alternately with and without the gate, a few each, and
// prints the increase.
func BenchmarkStartsWithTheGate(b *testing.B) {
	n := startNode(b)
	const turn = 5
	took := map[bool][]time.Duration{}
	for i := range max(trials(100)/turn, 1) {
		for _, gate := range []bool{i%2 == 0, i%2 != 0} { // alternate the order
			n.startAgent(config("gate: %v", gate))
			n.agentLogs("runtime events connected", 1)
			n.passing("4Mi") // the first one after an agent has come
			for range turn {
				took[gate] = append(took[gate], n.passing("4Mi"))
			}
			if s := n.state().Gate; s.Asked != gate {
				b.Fatalf("state of the gate (enabled: %v) = %+v", gate, s)
			}
			if err := n.agent.Remove(n.ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	t := newTable("kernel "+n.Kernel+", how long a pod takes to start, ms", "the gate", "p50", "p90", "p99", "max", "starts")
	t.row(append([]any{"off"}, spread(took[false])...)...)
	t.row(append([]any{"on"}, spread(took[true])...)...)
	low, high := bootstrapInterval(took[true], took[false])
	t.note("the median with the gate is longer by %.1f %% to %.1f %% (bootstrap, 95 %%), at most %.0f %%", 100*low, 100*high, 100*maxSlower)
	t.print()
	if high > maxSlower {
		b.Errorf("starts are slower by up to %.1f %%", 100*high)
	}
	reportOnce(b)
}

// bootstrapInterval returns by which share of their median some times are longer than others at the median:
// the interval that has 95 of 100 bootstrap samples of both. The samples are deterministic.
func bootstrapInterval(with, without []time.Duration) (low, high float64) {
	random := rand.New(rand.NewPCG(1, 2))
	again := func(of []time.Duration) time.Duration {
		sample := make([]time.Duration, len(of))
		for i := range sample {
			sample[i] = of[random.IntN(len(of))]
		}
		return median(sample)
	}
	const samples = 10000
	shares, base := make([]float64, samples), float64(median(without))
	for i := range shares {
		shares[i] = float64(again(with)-again(without)) / base
	}
	slices.Sort(shares)
	return shares[rank(0.025, samples)], shares[rank(0.975, samples)]
}

func TestSlower(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	times := func(middle, around int) (out []time.Duration) {
		for range 100 {
			out = append(out, time.Duration(middle-around+random.IntN(2*around+1))*time.Microsecond)
		}
		return out
	}
	for _, c := range []struct {
		what          string
		with, without []time.Duration
		low, high     float64 // bounds of the interval
	}{
		{"the same", times(100000, 10000), times(100000, 10000), -0.05, 0.05},
		{"a tenth longer", times(110000, 1000), times(100000, 1000), 0.09, 0.11},
		{"a tenth shorter", times(90000, 1000), times(100000, 1000), -0.11, -0.09},
	} {
		low, high := bootstrapInterval(c.with, c.without)
		if low > high || low < c.low || high > c.high {
			t.Errorf("%s: interval = %.3f to %.3f, want within %.2f to %.2f", c.what, low, high, c.low, c.high)
		}
		if l, h := bootstrapInterval(c.with, c.without); l != low || h != high {
			t.Errorf("%s: interval of a second call = %.3f to %.3f, want the same", c.what, l, h)
		}
	}
	if low, high := bootstrapInterval(times(106000, 1000), times(100000, 1000)); low <= maxSlower || high <= maxSlower {
		t.Errorf("interval of times 6 %% longer = %.3f to %.3f, want 0.06 inside", low, high)
	}
}
