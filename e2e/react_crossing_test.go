package e2e

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// rates are a victim's leak rates and its distance above the threshold at the start: enough for a
// second, a third of one, and less.
var rates = []struct {
	name, rate string
	headroom   int64
}{{"10 MiB/s", "10Mi", 10 * mib}, {"100 MiB/s", "100Mi", 30 * mib}, {"full speed", "0", 40 * mib}}

// leaking returns a BestEffort pod that leaks after a signal.
func leaking() *v1.Pod { return vm.NewPod("leaker", "", "", "leak /beat/go") }

// ladders are the compared settings of the kill ladder. The first has all steps.
var ladders = []string{"", "cgroup.kill", "cgroup.kill,cpu", "cgroup.kill,cpu,mrelease", "runtime"}

// BenchmarkReactCrossing measures, by the guest's sampler, the time from the first sample below the
// threshold until the victim is being killed, for the agent, earlyoom and a kubelet in sequence on
// one node. If JETTISON_OLDER names an older agent, it alternates with this one.
func BenchmarkReactCrossing(b *testing.B) {
	r := newReactor(b, vm.Options{MiB: 1536, Kubelet: true})
	t := newCrossings(r)
	r.part(b, "jettison", func() {
		outcomes, agents, times := map[string][]outcome{}, r.agents(), 1
		if len(agents) > 1 {
			times = turns
		}
		for range times {
			for _, name := range agents {
				k := r.reacting(name)
				for _, rate := range rates {
					l := load{name: rate.name, pod: leaking(), headroom: rate.headroom, rate: rate.rate}
					for range trials(50) / times {
						outcomes[name+rate.name] = append(outcomes[name+rate.name], r.try(k, l))
					}
				}
				k.stop()
			}
		}
		for _, rate := range rates {
			for _, name := range agents {
				t.outcomes(name+", "+rate.name, outcomes[name+rate.name])
			}
		}
	})
	r.part(b, "earlyoom", func() {
		for _, rate := range rates {
			t.add("earlyoom, "+rate.name, &byEarlyOOM{reactor: r}, load{name: rate.name, pod: leaking(), headroom: rate.headroom, rate: rate.rate}, trials(10))
		}
	})
	r.part(b, "kubelet", func() { r.kubelet(t) })
	t.print()
}

// crossings is the table of BenchmarkReactCrossing.
type crossings struct {
	r *reactor
	sampledTable
}

func newCrossings(r *reactor) *crossings {
	return &crossings{r, newSampledTable(fmt.Sprintf("kernel %s, threshold crossed to kill written, ms", r.Kernel),
		"who, leak rate", "p50", "p90", "p99", "max", "count", "over 100 ms", "wrong")}
}

// add makes a row of trials.
func (c *crossings) add(name string, k killer, l load, count int) {
	var out []outcome
	for range count {
		out = append(out, c.r.try(k, l))
	}
	c.outcomes(name, out)
}

// outcomes makes a row of the outcomes of trials.
func (c *crossings) outcomes(name string, out []outcome) {
	var times, stamps []time.Duration
	wrong := faults{}
	for _, o := range out {
		wrong.add(o.faults)
		c.sampled(o.Sample)
		if o.killed != 0 && o.Crossed != 0 {
			times = append(times, time.Duration(max(o.killed-o.Crossed, 0)))
		}
		if o.killed != 0 && o.signalled != 0 && o.killed != o.signalled {
			stamps = append(stamps, time.Duration(o.killed-o.signalled))
		}
	}
	c.crossed(name, times, wrong)
	if len(stamps) > 0 {
		s := spread(stamps)
		c.note("%s: the stamp is later than the kernel's own of the first SIGKILL by p50 %v, max %v ms", name, s[0], s[3])
	}
}

func (c *crossings) crossed(name string, times []time.Duration, wrong faults) {
	over := 0
	for _, t := range times {
		if t > 100*time.Millisecond {
			over++
		}
	}
	c.row(append(append([]any{name}, spread(times)...), over, wrong)...)
	fmt.Printf("-- %s: %v, over 100 ms: %d, wrong: %v\n", name, spread(times), over, wrong)
}

// kubeletThreshold is far above that of the others. The kubelet's formula does not count the
// kernel's own memory, here about 100 MiB. With a threshold of 100 MiB it would be met only when no
// memory is left, and then the kubelet no longer runs.
const kubeletThreshold = 300 * mib

// kubeletRound is the kubelet's pause between two checks (pkg/kubelet/kubelet.go,
// evictionMonitoringPeriod).
const kubeletRound = 10 * time.Second

// kubeletLimit is how long the kubelet may take to detect a met threshold.
const kubeletLimit = 25 * time.Second

// kubelet measures how long a kubelet takes to log that it attempts to reclaim. A standalone
// kubelet has only static pods, which it never evicts. So this is its detection time, without the
// kill.
func (r *reactor) kubelet(c *crossings) {
	r.t.Helper()
	for _, p := range r.others {
		if err := p.Remove(r.ctx); err != nil {
			r.t.Fatal(err)
		}
	}
	r.others = nil
	r.level(kubeletThreshold+2*room, guestapi.WorkingSet)
	// The kernel kills one process, not its pod, and the leaker would restart immediately.
	if err := r.StartKubelet(r.ctx, vm.KubeletOptions{Config: fmt.Sprintf("evictionHard: {memory.available: \"%d\"}\nsingleProcessOOMKill: true\n", kubeletThreshold)}); err != nil {
		r.t.Fatal(err)
	}
	leaker := r.runStatic(withEmptyDir(vm.NewPod("leaker", "", "", "again leak /go/fifo"), "go", v1.EmptyDirVolumeSource{}))
	leaker.Expected = vm.Any
	for i, rate := range rates {
		var times []time.Duration
		wrong := faults{}
		count := trials(10)
		if i > 0 {
			count = min(count, 2) // it reacts too late: counted, not timed
		}
		for range count {
			took, fault := r.tryKubelet(c, leaker, rate.rate, rate.headroom)
			if fault != "" {
				wrong.add([]string{fault})
				continue
			}
			times = append(times, took)
		}
		c.crossed("kubelet (below 300 MiB to its detection), "+rate.name, times, wrong)
	}
}

// tryKubelet runs one trial.
func (r *reactor) tryKubelet(c *crossings, leaker *vm.Pod, rate string, headroom int64) (took time.Duration, fault string) {
	r.t.Helper()
	fifo := leaker.EmptyDir("go") + "/fifo"
	// The kubelet's rounds and the trials must be independent.
	time.Sleep(rand.N(kubeletRound))
	r.level(kubeletThreshold+headroom, guestapi.WorkingSet)
	before, err := r.Memory(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	log, err := r.ReadFile(r.ctx, vm.KubeletLogPath, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	stop, err := r.Sample(r.ctx, guestapi.SampleRequest{Threshold: kubeletThreshold, By: guestapi.WorkingSet, Cgroup: leaker.Cgroup})
	if err != nil {
		r.t.Fatal(err)
	}
	// The leaker may not have restarted yet after a kernel kill.
	tell := func(text string) {
		r.until("the leaker is told "+text, func() error { return r.WriteFile(r.ctx, fifo, []byte(text+"\n")) })
	}
	tell(rate)
	var detected time.Time
	oom := false
	for end := time.Now().Add(kubeletLimit); time.Now().Before(end) && detected.IsZero() && !oom; time.Sleep(200 * time.Millisecond) {
		m, err := r.Memory(r.ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		oom = m.OOMKills > before.OOMKills
		said, err := r.ReadFile(r.ctx, vm.KubeletLogPath, len(log))
		if err != nil {
			r.t.Fatal(err)
		}
		detected = reclaims(string(said), time.Now())
	}
	s, err := stop()
	if err != nil {
		r.t.Fatal(err)
	}
	c.sampled(s)
	tell("free")
	r.level(kubeletThreshold+room, guestapi.WorkingSet)
	r.awaitLevel(kubeletThreshold+room/2, guestapi.WorkingSet)
	switch {
	case !detected.IsZero() && s.Crossed != 0 && detected.UnixNano()-s.WallOffset < s.Crossed:
		return 0, "detected before it was sampled"
	case !detected.IsZero() && s.Crossed != 0:
		return time.Duration(detected.UnixNano() - s.WallOffset - s.Crossed), ""
	case oom:
		return 0, "kernel OOM kill first"
	case s.Crossed == 0:
		return 0, "never below the threshold"
	}
	r.t.Logf("met threshold not detected: %+v\n%s", s, r.KubeletLog(8))
	return 0, "not detected"
}

// reclaimLine matches the kubelet's log line about a met threshold
// (pkg/kubelet/eviction/eviction_manager.go), after klog's header.
var reclaimLine = regexp.MustCompile(`(?m)^.(\d{4} \d\d:\d\d:\d\d\.\d{6}) .*attempting to reclaim`)

// reclaims returns the time of the first such line, in the guest's time, which is UTC, or the zero
// time. klog omits the year.
func reclaims(log string, now time.Time) time.Time {
	m := reclaimLine.FindStringSubmatch(log)
	if m == nil {
		return time.Time{}
	}
	t, err := time.Parse("2006 0102 15:04:05.000000", fmt.Sprint(now.UTC().Year())+" "+m[1])
	if err != nil {
		return time.Time{}
	}
	return t
}

func TestReclaims(t *testing.T) {
	log := "I1121 07:20:33.123456    1234 kubelet.go:1] \"x\"\nW1121 07:20:34.000250    1234 eviction_manager.go:378] \"Eviction manager: attempting to reclaim\" resourceName=\"memory\"\n"
	now := time.Date(2031, 11, 21, 8, 0, 0, 0, time.UTC)
	if got, want := reclaims(log, now), time.Date(2031, 11, 21, 7, 20, 34, 250000, time.UTC); !got.Equal(want) {
		t.Errorf("time of the first reclaim line = %v, want %v", got, want)
	}
	if got := reclaims("attempting to reclaim\n", now); !got.IsZero() {
		t.Error(got)
	}
}
