package eviction

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"jettison/stats"
)

// in returns settings from lines "hard memory.available 150Mi"; further words are dropped.
func in(lines ...string) Settings {
	s := Settings{EvictionHard: map[string]string{}, EvictionSoft: map[string]string{}, EvictionSoftGracePeriod: map[string]string{}, EvictionMinimumReclaim: map[string]string{}, EnforceNodeAllocatable: []string{"none"}}
	for _, line := range lines {
		f := strings.SplitN(line, " ", 3)
		switch f[0] {
		case "hard":
			s.EvictionHard[f[1]] = f[2]
		case "soft":
			s.EvictionSoft[f[1]] = f[2]
		case "grace":
			s.EvictionSoftGracePeriod[f[1]] = f[2]
		case "min":
			s.EvictionMinimumReclaim[f[1]] = f[2]
		case "enforce":
			s.EnforceNodeAllocatable = []string{f[1]}
		case "own":
			s.OwnSignals = true
		}
	}
	return s
}

// wholeText writes a threshold with everything that it has.
func wholeText(t Threshold) string {
	text := t.String()
	if !t.Hard() {
		text += " for " + t.Grace.String()
	}
	if t.MinReclaim != nil {
		text += " and " + t.MinReclaim.String()
	}
	return text
}

// The kubelet's grammar, case by case, with its own error texts.
func TestParseSettings(t *testing.T) {
	for _, c := range []struct {
		id       string
		settings Settings
		want     []string // thresholds as text
		err      string
	}{
		{"A01", in(), nil, ""},
		{"A02", in("enforce pods", "hard memory.available 150Mi", "soft memory.available 300Mi", "grace memory.available 30s", "min memory.available 0"),
			[]string{"memory.available<150Mi and 0", "memory.available<300Mi for 30s and 0", "allocatableMemory.available<150Mi and 0"}, ""},
		{"A03", in("hard memory.available 10%", "soft memory.available 30%", "grace memory.available 30s", "min memory.available 5%"),
			[]string{"memory.available<10% and 5%", "memory.available<30% for 30s and 5%"}, ""},
		{"A04", in("hard imagefs.available 150Mi", "hard nodefs.available 100Mi", "soft imagefs.available 300Mi", "soft nodefs.available 200Mi", "grace imagefs.available 30s", "grace nodefs.available 30s", "min imagefs.available 2Gi", "min nodefs.available 1Gi"),
			[]string{"imagefs.available<150Mi and 2Gi", "nodefs.available<100Mi and 1Gi", "imagefs.available<300Mi for 30s and 2Gi", "nodefs.available<200Mi for 30s and 1Gi"}, ""},
		{"A05", in("hard imagefs.available 15%", "hard nodefs.available 10.5%"), []string{"imagefs.available<15%", "nodefs.available<10.5%"}, ""},
		{"A06", in("hard imagefs.inodesFree 150Mi"), []string{"imagefs.inodesFree<150Mi"}, ""},
		{"A07", in("hard memory.available 0%"), nil, ""},
		{"A07", in("soft memory.available 0%"), nil, ""},
		{"A08", in("hard memory.available 100%"), nil, ""},
		{"A09", in("hard mem.available 150Mi"), nil, "unsupported eviction signal mem.available"},
		{"A10", in("hard memory.available -150Mi"), nil, "eviction threshold memory.available must be positive: -150Mi"},
		{"A10", in("hard memory.available 0"), nil, "eviction threshold memory.available must be positive: 0"},
		{"A11", in("hard memory.available -15%"), nil, "eviction percentage threshold memory.available must be >= 0%: -15%"},
		{"A12", in("hard memory.available 150%"), nil, "eviction percentage threshold memory.available must be <= 100%: 150%"},
		{"A13", in("hard memory.available 150Mi", "hard invalid.foo 150Mi"), nil, "unsupported eviction signal invalid.foo"},
		{"A14", in("soft memory.available 150Mi"), nil, "grace period must be specified for the soft eviction threshold memory.available"},
		{"A15", in("soft memory.available 150Mi", "grace memory.available -30s"), nil, "invalid eviction grace period specified: -30s, must be a positive value"},
		{"A16", in("soft memory.available 150Mi", "grace memory.available 30mins"), nil, `time: unknown unit "mins" in duration "30mins"`},
		{"A17", in("grace mem.available 30s"), nil, "unsupported eviction signal mem.available"},
		{"A18", in("hard memory.available 1Gi", "min memory.available -300Mi"), nil, "negative eviction minimum reclaim specified for memory.available"},
		{"A19", in("hard memory.available 1Gi", "min memory.available "), nil, "quantities must match the regular expression"},
		{"A19", in("hard memory.available 1Gi", "min memory.available 10..5%"), nil, "invalid syntax"},
		{"A19", in("hard memory.available 1Gi", "min memory.available -15%"), nil, "eviction percentage minimum reclaim memory.available must be positive: -15%"},
		{"A19", in("hard memory.available 1Gi", "min memory.available 0%"), nil, "eviction percentage minimum reclaim memory.available must be positive: 0%"},
		{"A19", in("hard memory.available "), nil, "quantities must match the regular expression"},
		{"A19", in("hard memory.available 10..5%"), nil, "invalid syntax"},
		{"A20", in("hard memory.available 25.5%"), []string{"memory.available<25.5%"}, ""},
		{"A20", in("hard memory.available blah"), nil, "quantities must match the regular expression"},
		{"A20", in("hard memory.available foo%"), nil, "invalid syntax"},
		{"A20", in("hard memory.available 12%345"), nil, "quantities must match the regular expression"},
		{"our signals are not a kubelet's", in("hard swap.available 1Gi"), nil, "unsupported eviction signal swap.available"},
		{"ours", in("own x", "hard swap.available 10%", "hard memory.pressure.full 20%/1s", "soft io.pressure.full 33.5%/5m", "grace io.pressure.full 1m"),
			[]string{"memory.pressure.full>20%/1s", "swap.available<10%", "io.pressure.full>33.5%/5m for 1m0s"}, ""},
		{"pressure", in("own x", "hard cpu.pressure.some 20%"), nil, "pressure threshold cpu.pressure.some must be a share of time and a window, as 20%/1s: 20%"},
		{"pressure", in("own x", "hard cpu.pressure.some 100%/1s"), nil, "pressure threshold cpu.pressure.some must be above 0% and below 100%: 100%/1s"},
		{"pressure", in("own x", "hard cpu.pressure.some NaN%/1s"), nil, "pressure threshold cpu.pressure.some must be above 0% and below 100%: NaN%/1s"},
		{"pressure", in("own x", "hard cpu.pressure.some 20%/3s"), nil, "window of pressure threshold cpu.pressure.some must be 1s, 10s, 1m or 5m: 20%/3s"},
		{"pressure", in("own x", "hard cpu.pressure.some 20%/1s", "min cpu.pressure.some 5%"), nil, "eviction minimum reclaim has no meaning for cpu.pressure.some"},
	} {
		thresholds, _, errs := c.settings.Parse()
		var got []string
		for _, threshold := range thresholds {
			got = append(got, wholeText(threshold))
		}
		if c.err == "" && (len(errs) > 0 || !slices.Equal(got, c.want)) {
			t.Errorf("%s: thresholds %q, errors %v, want %q", c.id, got, errs, c.want)
		}
		if c.err != "" && (len(errs) != 1 || !strings.Contains(errs[0].Err.Error(), c.err) || thresholds != nil) {
			t.Errorf("%s: errors %v, want %q", c.id, errs, c.err)
		}
	}
	if got, _, errs := (Settings{EvictionHard: DefaultHard()}).Parse(); len(got) != 5 || len(errs) > 0 {
		t.Errorf("defaults: thresholds %v, errors %v, want 5 and none", got, errs)
	}
}

// Settings that a kubelet accepts and should not (weakness 28 and facts section 2) give one
// warning, which names the field.
func TestDoubtfulSettings(t *testing.T) {
	for want, s := range map[string]Settings{
		"": in("hard memory.available 1Gi", "soft memory.available 2Gi", "grace memory.available 1m", "min memory.available 5%"),
		"evictionHard: memory.available: NaN% is not a number: the threshold memory.available would never be met":                                            in("hard memory.available NaN%"),
		"evictionHard: memory.available: 100.0% is always met: write 100% to switch the threshold memory.available off":                                      in("hard memory.available 100.0%"),
		"evictionHard: memory.available: 0.0% is never met: write 0% to switch the threshold memory.available off":                                           in("hard memory.available 0.0%"),
		`evictionHard: memory.available: "10%%" is an unusual form of a percentage`:                                                                          in("hard memory.available 10%%"),
		"evictionSoft: memory.available: soft eviction threshold memory.available<1Gi is never met before the hard one memory.available<2Gi":                 in("hard memory.available 2Gi", "soft memory.available 1Gi", "grace memory.available 1m"),
		"evictionSoft: memory.available: soft eviction threshold memory.available<5% is never met before the hard one memory.available<5%":                   in("hard memory.available 5%", "soft memory.available 5%", "grace memory.available 1m"),
		"evictionSoftGracePeriod: memory.available: a grace period of 0 makes the soft eviction threshold memory.available a hard one":                       in("soft memory.available 1Gi", "grace memory.available 0s"),
		"evictionSoftGracePeriod: pid.available: grace period for pid.available has no soft eviction threshold":                                              in("hard pid.available 100", "grace pid.available 1m"),
		"evictionMinimumReclaim: pid.available: minimum reclaim for pid.available has no eviction threshold":                                                 in("min pid.available 10"),
		"evictionMinimumReclaim: memory.available: minimum reclaim 150% of memory.available exceeds the capacity: its evictions would never end":             in("hard memory.available 10%", "min memory.available 150%"),
		"evictionHard: containerfs.available: containerfs.available follows from nodefs or imagefs: found containerfs.available for hard eviction. ignoring": in("hard containerfs.available 1Gi"),
	} {
		_, warnings, errs := s.Parse()
		got := ""
		for _, w := range warnings {
			got += w.Line()
		}
		if got != want || len(errs) > 0 {
			t.Errorf("warnings = %s, errors %v, want %s", got, errs, want)
		}
	}
}

// The second check, at start, compares with the node's capacity.
func TestCheckCapacity(t *testing.T) {
	observed := func(s stats.Signal) stats.Observation {
		if s == stats.SignalPIDAvailable {
			return stats.Observation{}
		}
		return stats.Observation{Capacity: 1 << 30, Value: 1 << 29, OK: true}
	}
	for want, s := range map[string]Settings{
		"": in("hard memory.available 1Mi", "hard pid.available 100E"),
		"evictionHard: memory.available: memory.available<2Gi can never be satisfied: the capacity is 1Gi":                                                                in("hard memory.available 2Gi"),
		"evictionHard: memory.available: memory.available<1Gi is met as soon as anything is in use: the capacity is 1Gi":                                                  in("hard memory.available 1Gi"),
		"evictionMinimumReclaim: memory.available: memory.available<600Mi and a minimum reclaim of 600Mi leave nothing of the capacity of 1Gi: evictions would never end": in("hard memory.available 600Mi", "min memory.available 600Mi"),
		"evictionMinimumReclaim: memory.available: memory.available<600Mi and a minimum reclaim of 424Mi leave nothing of the capacity of 1Gi: evictions would never end": in("hard memory.available 600Mi", "min memory.available 424Mi"),
		"evictionHard: memory.available: memory.available<1073741825 can never be satisfied: the capacity is 1Gi":                                                         in("hard memory.available 1073741825"),
		"evictionSoft: memory.available: soft eviction threshold memory.available<10% is never met before the hard one memory.available<200Mi: the capacity is 1Gi":       in("hard memory.available 200Mi", "soft memory.available 10%", "grace memory.available 1m"),
	} {
		thresholds, _, errs := s.Parse()
		got := ""
		for _, w := range CheckCapacity(thresholds, observed) {
			got += w.Line()
		}
		if got != want || len(errs) > 0 {
			t.Errorf("warnings = %s, errors %v, want %s", got, errs, want)
		}
	}
}

// B03: the kubelet multiplies by a 32-bit float: 10% of 1000Mi is 104857601. No capacity makes a
// share overflow.
func TestPercentagesAreTheKubelets(t *testing.T) {
	got, _, _ := in("hard memory.available 10%").Parse()
	if v := got[0].Value.Of(1000 << 20); v != 104857601 {
		t.Errorf("10%% of 1000Mi = %d, want the kubelet's 104857601", v)
	}
	if v := got[0].Value.Of(1<<64 - 1); v > 1<<63 {
		t.Errorf("10%% of the largest capacity = %d, want at most 1<<63", v)
	}
	if got, _, _ = in("hard memory.available NaN%").Parse(); got[0].Value.Of(1<<40) != 0 {
		t.Errorf("NaN%% of 1Ti = %d, want 0", got[0].Value.Of(1<<40))
	}
}

// B03, B14: shares of the capacity, with a minimum reclaim as a share, for a threshold that was
// acted on before. Tasks: the rest of the maximum.
func TestSharesAreMet(t *testing.T) {
	thresholds, _, _ := in("hard memory.available 20%", "min memory.available 5%", "hard pid.available 254817").Parse()
	for _, c := range []struct {
		available string
		before    string // of the previous step
		met       bool
	}{{"100Mi", "", true}, {"300Mi", "", false}, {"225Mi", "", false}, {"225Mi", "100Mi", true}, {"300Mi", "100Mi", false}} {
		m, in := NewManager(Config{Thresholds: thresholds, MemoryAvailable: stats.MemoryAvailableWorkingSet}), Input{Summary: &stats.Summary{}}
		var d Decision
		for _, available := range []string{c.before, c.available} {
			if available != "" {
				in.Summary.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(quantity("1000Mi")), WorkingSetBytes: stats.Some(quantity("1000Mi") - quantity(available))}
				d = m.Step(epoch, in)
			}
		}
		if met := len(d.Met) == 1; met != c.met {
			t.Errorf("B03: %s after %q: met = %v, want %v", c.available, c.before, met, c.met)
		}
	}
	m, in := NewManager(Config{Thresholds: thresholds}), Input{Summary: &stats.Summary{}}
	in.Summary.Node.PIDs = stats.NodePIDStats{Max: stats.Some(uint64(255816)), Current: stats.Some(uint64(1000))}
	if d := m.Step(epoch, in); len(d.Met) != 1 || d.Met[0].ObservedText() != "254816" || d.Met[0].Observed.Capacity != 255816 {
		t.Errorf("B14: met = %+v, want 254816 of 255816 tasks", d.Met)
	}
}

// E04, E05: containerfs has copies of nodefs' thresholds, or of imagefs' if that holds the writable
// layers; configured ones are overwritten.
func TestContainerFsFollowsTheLayout(t *testing.T) {
	thresholds, _, errs := in(
		"hard nodefs.available 100Mi", "soft nodefs.available 200Mi", "min nodefs.available 1Gi", "hard nodefs.inodesFree 100Mi", "soft nodefs.inodesFree 200Mi",
		"hard imagefs.available 150Mi", "soft imagefs.available 300Mi", "min imagefs.available 1.5Gi", "hard imagefs.inodesFree 300Mi", "soft imagefs.inodesFree 150Mi",
		"grace nodefs.available 1m", "grace nodefs.inodesFree 1m", "grace imagefs.available 1m", "grace imagefs.inodesFree 1m",
		"hard containerfs.available 500Mi", "soft containerfs.inodesFree 500Mi", "grace containerfs.inodesFree 1m").Parse()
	if errs != nil {
		t.Fatalf("Parse of the settings failed: %v", errs)
	}
	nodefs := []string{"containerfs.available<100Mi and 1Gi", "containerfs.inodesFree<100Mi", "containerfs.available<200Mi for 1m0s and 1Gi", "containerfs.inodesFree<200Mi for 1m0s"}
	for layout, want := range map[stats.Layout][]string{
		{}: nodefs,
		{DedicatedImageFs: true, SplitContainerFs: true}: nodefs,
		{DedicatedImageFs: true}:                         {"containerfs.available<150Mi and 1536Mi", "containerfs.inodesFree<300Mi", "containerfs.available<300Mi for 1m0s and 1536Mi", "containerfs.inodesFree<150Mi for 1m0s"},
	} {
		var got []string
		for _, c := range withContainerFs(thresholds, layout) {
			if strings.HasPrefix(string(c.Signal), "containerfs") {
				got = append(got, wholeText(c))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("thresholds with layout %+v = %q, want %q", layout, got, want)
		}
	}
}

// Conditions have the kubelet's reasons and events.
func TestConditionWords(t *testing.T) {
	got := ""
	for _, c := range []Condition{MemoryPressure, DiskPressure, PIDPressure} {
		got += fmt.Sprintln(c, c.Reason(true), c.Reason(false), c.Event(true), c.Event(false))
	}
	if want := `MemoryPressure KubeletHasInsufficientMemory KubeletHasSufficientMemory NodeHasInsufficientMemory NodeHasSufficientMemory
DiskPressure KubeletHasDiskPressure KubeletHasNoDiskPressure NodeHasDiskPressure NodeHasNoDiskPressure
PIDPressure KubeletHasInsufficientPID KubeletHasSufficientPID NodeHasInsufficientPID NodeHasSufficientPID
`; got != want {
		t.Errorf("condition words =\n%s\nwant\n%s", got, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, v := range []string{"100Mi", "10%", "-1", "1e400", "NaN%", "١٠%", "100.0%", "20%/1s", "100E", "1e-400"} {
		f.Add("memory.available", v, "1m")
		f.Add("memory.pressure.full", v, "1m")
	}
	f.Fuzz(func(t *testing.T, signal, value, grace string) {
		m := map[string]string{signal: value}
		s := Settings{EvictionHard: m, EvictionSoft: m, EvictionSoftGracePeriod: map[string]string{signal: grace}, EvictionMinimumReclaim: m, OwnSignals: true, EnforceNodeAllocatable: []string{"pods"}}
		got, warnings, errs := s.Parse()
		if len(errs) > 0 != (got == nil) && len(got) > 0 || len(got) > 4 {
			t.Errorf("Parse of %q: %d thresholds, errors %v, want one kind of result", value, len(got), errs)
		}
		for _, e := range append(warnings, errs...) {
			if len(e.Field) != 2 || e.Err == nil {
				t.Errorf("error without a field path: %v", e)
			}
		}
		for _, threshold := range got {
			if threshold.Value.Of(1<<64-1) > 1<<63 {
				t.Errorf("%v of the largest capacity = %d, want at most 1<<63", threshold, threshold.Value.Of(1<<64-1))
			}
			_ = threshold.String()
		}
		CheckCapacity(got, func(stats.Signal) stats.Observation { return stats.Observation{Capacity: 1 << 40, OK: true} })
	})
}

// A soft threshold with a grace period of 0 is a hard one (facts section 2), possibly of the same
// signal as another one. So may be the copy for all pods next to a configured threshold. Each is
// met by its own value.
func TestThresholdsOfOneSignal(t *testing.T) {
	for _, c := range []struct {
		settings  Settings
		available string
		want      string
	}{
		{in("hard memory.available 1Gi", "soft memory.available 2Gi", "grace memory.available 0s"), "1500Mi", "memory.available<2Gi"},
		{in("hard memory.available 1Gi", "soft memory.available 2Gi", "grace memory.available 0s"), "500Mi", "memory.available<1Gi memory.available<2Gi"},
		{in("enforce pods", "hard memory.available 1Gi", "hard allocatableMemory.available 2Gi"), "1500Mi", "allocatableMemory.available<2Gi"},
		{in("enforce pods", "hard memory.available 1Gi", "soft memory.available 2Gi", "grace memory.available 0s"), "1500Mi", "memory.available<2Gi allocatableMemory.available<2Gi"},
	} {
		thresholds, _, errs := c.settings.Parse()
		if errs != nil {
			t.Fatalf("Parse of the settings failed: %v", errs)
		}
		m, look := NewManager(Config{Thresholds: thresholds, MemoryAvailable: stats.MemoryAvailableKernel, MaxPodGracePeriodSeconds: 60}), Input{Summary: &stats.Summary{}}
		look.Summary.Pods = []stats.PodStats{{PodRef: stats.PodReference{UID: "a"}}}
		n := &look.Summary.Node
		n.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(quantity("8Gi")), KernelAvailableBytes: stats.Some(quantity(c.available))}
		n.Allocatable = stats.AllocatableMemoryStats{LimitBytes: stats.Some(quantity("8Gi")), WorkingSetBytes: stats.Some(quantity("8Gi") - quantity(c.available))}
		d := m.Step(epoch, look)
		var met []string
		for _, m := range d.Met {
			met = append(met, m.Threshold.String())
		}
		if got := strings.Join(met, " "); got != c.want || len(d.Evictions) != 1 || d.Evictions[0].GracePeriodSeconds != 1 {
			t.Errorf("met = %s, want %s; evictions %+v, want one of a hard threshold", got, c.want, d.Evictions)
		}
		if _, value, _ := strings.Cut(met[0], "<"); !strings.Contains(d.Evictions[0].Message, "Threshold quantity: "+value+", ") {
			t.Errorf("message for %s = %q, want its quantity", met[0], d.Evictions[0].Message)
		}
	}
}

// If all pods together may not have as many tasks as pid.available requires, that limit does not count:
// the threshold would always be met, and every pod be evicted. A kubelet reserves 20k tasks on nodes
// with the kernel's default limit of 32,768 (gardener#3042).
func TestPodsTaskLimitBelowTheThreshold(t *testing.T) {
	for _, c := range []struct {
		node, pods uint64 // tasks
		met        bool
	}{{400, 50, false}, {12900, 12700, true}} {
		m := managerOf(t, 0, "own x", "hard pid.available 20k")
		s := &stats.Summary{Time: epoch}
		s.Node.PIDs = stats.NodePIDStats{Time: epoch, Max: stats.Some(uint64(32768)), Current: stats.Some(c.node),
			PodsMax: stats.Some(uint64(12768)), PodsCurrent: stats.Some(c.pods)}
		m.Observe(epoch, &s.Node, Situation{})
		if d := m.Step(epoch, Input{Summary: s}); (len(d.Met) > 0) != c.met {
			t.Errorf("%d tasks: met = %v, want met %v", c.node, d.Met, c.met)
		}
	}
}
