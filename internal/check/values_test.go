package check

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"jettison/internal/config"
	"jettison/internal/observe"
	"jettison/internal/sources"
	"jettison/stats"
)

func options() observe.Options {
	return observe.Options{Options: sources.Options{Config: &config.Loaded{Config: config.Default()}}, Watch: time.Second}
}

// Each signal has a line: its value with the threshold and its age, or that it is absent, and why.
func TestSignals(t *testing.T) {
	now := time.Unix(1700000000, 0)
	var s stats.Summary
	s.Node.Memory = stats.NodeMemoryStats{
		Time: now.Add(-time.Second), CapacityBytes: stats.Some(uint64(1000 << 20)), WorkingSetBytes: stats.Some(uint64(600 << 20)),
		KernelAvailableBytes: stats.Some(uint64(300 << 20)),
	}
	s.Node.PIDs = stats.NodePIDStats{Time: now, Max: stats.Some(uint64(100)), Current: stats.Some(uint64(25))}
	var out bytes.Buffer
	printSignals(&out, now, &s, options())
	for _, want := range []string{
		"memory.available\t300Mi\t1000Mi\t30.0%\t<100Mi\t1s\tlower: workingSet 400Mi, kernel 300Mi\n", "pid.available\t75\t100\t75.0%\t-\t0s\t\n",
		"nodefs.available\tabsent\t-\t-\t<10%\t-\t",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n != len(stats.Signals) {
		t.Errorf("%d lines", n)
	}
}

// A share that was not watched for long enough is not one of 0.
func TestPressure(t *testing.T) {
	now := time.Unix(1700000000, 0)
	var p stats.NodePressure
	p.Memory = stats.Pressure{Time: now, Some: stats.StallShare{Over1s: stats.Some(0.25)}}
	p.Memory.Stats.OK, p.Memory.Stats.V.HasSome, p.Memory.Stats.V.Some.Avg10 = true, true, 12.5
	var out bytes.Buffer
	printPressure(&out, now, &p, options())
	for _, want := range []string{
		"memory.pressure.some\t-\t-\t-\t-\t0s\tstalled: 1s 25.00%, 10s - (watched for 1s), kernel's avg10 12.50%\n",
		"memory.pressure.full\tabsent\t", "cpu.pressure.full\tabsent\t-\t-\t-\t-\tthe kernel reports no pressure: boot it with psi=1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestStatusRefused(t *testing.T) {
	if n := statusRefused([]stats.PodStats{{StatusRefused: true}, {}, {StatusRefused: true}}); n != 2 {
		t.Errorf("%d", n)
	}
}

// An annotation gives a priority only where annotations count.
func TestPriorityUnknown(t *testing.T) {
	pod := func(namespace, priority string) stats.PodStats {
		return stats.PodStats{PodRef: stats.PodReference{Namespace: namespace}, Annotations: map[string]string{"jettison/priority": priority}}
	}
	if n := priorityUnknown([]stats.PodStats{pod("a", "7"), pod("b", "7"), pod("a", ""), {}}, []string{"a"}); n != 3 {
		t.Errorf("unknown for %d", n)
	}
}
