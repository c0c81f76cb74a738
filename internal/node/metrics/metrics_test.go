package metrics

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// full returns inputs with a value for everything, and more label values than a Vec has rows.
func full() *Inputs { return inputs(2 * maxRows) }

// inputs returns inputs with a value for everything, with this number of runtime calls.
func inputs(calls int) *Inputs {
	share := stats.PSIData{Avg10: 50, Avg60: 25, Avg300: 12.5}
	pressure := stats.Pressure{Stats: stats.Some(stats.PSIStats{Some: share, Full: share, HasSome: true, HasFull: true})}
	state := &api.State{
		Disk: "act", Gate: &api.GateState{Admitted: 3, Preempted: 1},
		Pods:       api.PodCount{UnknownPriority: &api.UnknownPriority{Pods: 2, Unprotected: 1}, Objects: 5, Clients: 3},
		Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: true}},
	}
	now := &Now{State: state, Pressure: stats.NodePressure{CPU: pressure, Memory: pressure, IO: pressure},
		Met: map[stats.Signal]bool{stats.SignalMemoryAvailable: true}, Pods: "off", GC: "act"}
	for _, s := range []stats.Signal{
		stats.SignalMemoryAvailable, stats.SignalNodeFsAvailable, stats.SignalNodeFsInodesFree, stats.SignalPIDAvailable, stats.SignalMemoryPressureFull,
	} {
		state.Signals = append(state.Signals, api.SignalState{Signal: s, Observed: true, Available: 250_000, Capacity: 1_000_000})
		now.Thresholds = append(now.Thresholds, Threshold{s, true, 100_000, true}, Threshold{s, false, 200_000, true})
	}
	state.Config = &api.ConfigState{Read: time.Now(), Reloads: 2, Failed: 1, Error: "c.yaml:3: wrong"}
	p := &Parts{
		Looks: &Looks{Delay: NewHistogram(Delays...)}, Wakes: &Wakes{}, Reclaim: &Reclaim{}, Operations: NewHistogramVec(Kills...),
		Evictions: &Evictions{ToKill: NewHistogram(Kills...), ToRecovery: NewHistogram(Kills...)},
		Garbage:   &Garbage{Took: NewHistogramVec(Passes...)},
		Background: func(now time.Time) []stats.SourceStatus {
			return []stats.SourceStatus{{Name: "nodefs", Time: now, Failures: 2}, {Name: "imagefs", Err: errors.New("hangs")}}
		},
		Records: func() uint64 { return 1 }, Frames: func() uint64 { return 2 },
		Refused: func() map[string]uint64 { return map[string]uint64{"OutOfcpu": 2, "Evicted": 1} }, Observed: func() map[string]uint64 { return nil },
	}
	for _, s := range []*Source{&p.Looks.Memory, &p.Looks.Allocatable, &p.Looks.Node} {
		s.Read(nil)
	}
	for _, signal := range []string{"memory.available", "nodefs.available", "pid.available", "emptydirfs.limit"} {
		for _, outcome := range []string{"back", "notBack", "undying", "dryRun"} {
			for _, qos := range []string{"BestEffort", "Burstable", "Guaranteed"} {
				p.Evictions.Outcomes.Add(1, signal, outcome, qos, "false")
			}
		}
	}
	p.Evictions.StepErrors.Add(1, "cgroup.kill")
	p.Evictions.ToKill.Observe(3 * time.Millisecond)
	for _, kind := range []string{"container", "image"} {
		p.Garbage.Removed.Add(2, kind)
		p.Garbage.Failed.Add(1, kind)
		p.Garbage.Freed.Add(1<<20, kind+"s")
		p.Garbage.Success.Set(1e9, kind+"s")
		p.Garbage.Took.Observe(time.Second, kind+"s")
	}
	for i := range calls {
		p.Operations.Observe(time.Millisecond, fmt.Sprint("Call", i))
	}
	return &Inputs{Version: "v1 \"x\"\n", Parts: p, Now: now, LogLines: 4, Events: 5, Proc: "/proc"}
}

// samples returns the samples of a text, by name with labels.
func samples(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if out[line[:at]] != "" {
			t.Errorf("duplicate sample in the text: %s", line)
		}
		out[line[:at]] = strings.TrimSpace(line[at+1:])
	}
	return out
}

// Every family with data is written once, in a fixed order and with its type, and no other.
func TestAllFamiliesAreWritten(t *testing.T) {
	text := string(Write(full()))
	var want, got []string
	for _, f := range Families {
		want = append(want, "# TYPE "+Prefix+f.Name+" "+f.Type)
		if strings.Contains(f.Name, "kubelet") || strings.Contains(f.Labels, "uid") || strings.Contains(","+f.Labels+",", ",pod,") {
			t.Errorf("family %s has a forbidden name or label: %s", f.Name, f.Labels)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "# TYPE "+Prefix) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("families differ, written:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if t.Logf("%d bytes", len(text)); len(text) > 300<<10 {
		t.Error("scrape is larger than 300 KB")
	}
	s := samples(t, text)
	for name, want := range map[string]string{
		`jettison_signal_available_bytes{eviction_signal="memory.available"}`:                                            "250000",
		`jettison_signal_available_ratio{eviction_signal="memory.pressure.full"}`:                                        "0.75",
		`jettison_threshold_ratio{eviction_signal="memory.pressure.full",kind="hard"}`:                                   "0.9",
		`jettison_threshold_tasks{eviction_signal="pid.available",kind="soft"}`:                                          "200000",
		`jettison_threshold_met{eviction_signal="memory.available"}`:                                                     "1",
		`jettison_threshold_met{eviction_signal="pid.available"}`:                                                        "0",
		`jettison_pressure_stalled_ratio{resource="memory",kind="full",window="5m"}`:                                     "0.125",
		`jettison_evictions_total{eviction_signal="pid.available",outcome="back",qos_class="Burstable",dry_run="false"}`: "1",
		`jettison_eviction_crossing_to_kill_seconds_bucket{le="0.0025"}`:                                                 "0",
		`jettison_eviction_crossing_to_kill_seconds_bucket{le="0.005"}`:                                                  "1",
		`jettison_eviction_crossing_to_kill_seconds_sum`:                                                                 "0.003",
		`jettison_source_up{source="imagefs"}`:                                                                           "0",
		`jettison_source_errors_total{source="nodefs"}`:                                                                  "2",
		`jettison_gate_decisions_total{decision="refused",reason="OutOfcpu"}`:                                            "2",
		`jettison_preemptions_total{outcome="made"}`:                                                                     "1",
		`jettison_log_lines_dropped_total`:                                                                               "4",
		`jettison_runtime_operations_duration_seconds_count{operation="other"}`:                                          fmt.Sprint(maxRows),
		`jettison_nri_connected`:                    "0",
		`jettison_pods{state="unprotected"}`:        "1",
		`jettison_pods{state="with_client_object"}`: "3",
	} {
		if s[name] != want {
			t.Errorf("value of %s = %q, want %s", name, s[name], want)
		}
	}
	if _, wanted := s[`jettison_source_up{source="tasks"}`]; wanted {
		t.Error("a source that is not in use has a sample")
	}
	if !strings.Contains(text, `version="v1 \"x\"\n"`) {
		t.Error("the value of a label is not escaped")
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_start_time_seconds", "go_goroutines", "process_open_fds"} {
		if s[name] == "" || s[name] == "NaN" {
			t.Errorf("value of %s = %q, want a number", name, s[name])
		}
	}
}

// Prometheus sees no increase in a counter that starts with 1, so the first failed eviction would
// trigger no alert. Each expected outcome starts with 0.
func TestOutcomesStartWithZero(t *testing.T) {
	for dry, row := range map[bool]string{
		false: `jettison_evictions_total{eviction_signal="memory.available",outcome="notBack",qos_class="Burstable",dry_run="false"}`,
		true:  `jettison_evictions_total{eviction_signal="memory.available",outcome="dryRun",qos_class="Burstable",dry_run="true"}`,
	} {
		in := full()
		in.Parts.Evictions.Outcomes, in.Now.State.DryRun = Vec{}, dry
		if s := samples(t, string(Write(in))); s[row] != "0" {
			t.Errorf("value of %s = %q before the first eviction, want 0", row, s[row])
		}
	}
}

// volatile matches values that differ in each run.
var volatile = regexp.MustCompile(`(?m)^((?:process_|go_)\S+|\S+_timestamp_seconds\S*) .*$`)

// The scrape that Prometheus' parser reads in e2e/metricsserver equals the written text, except for
// volatile values.
func TestAScrape(t *testing.T) {
	text := strings.ReplaceAll(string(Write(inputs(3))), runtime.Version(), "go1")
	nodetest.Golden(t, "scrape.metrics", volatile.ReplaceAllString(text, "$1 1"))
}

// Before the first publication, Write returns the families with data.
func TestBeforeFirstPublication(t *testing.T) {
	text := string(Write(&Inputs{Version: "v1", Proc: t.TempDir()}))
	if !strings.Contains(text, "jettison_build_info{") || strings.Contains(text, "condition_status") || strings.Contains(text, "process_cpu") {
		t.Errorf("unexpected text before the first publication: %s", text)
	}
}

// promtool, of Debian's package prometheus, accepts the text.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool here: apt-get install prometheus")
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(string(Write(full())))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool rejects the metrics text: %v: %s", err, out)
	}
}

// The cheap look counts, so counting must not allocate.
func TestCountingAllocations(t *testing.T) {
	var s Source
	h, c := NewHistogram(Delays...), Counter{}
	if n := testing.AllocsPerRun(100, func() { s.Read(nil); h.Observe(time.Millisecond); c.Add(1) }); n > 0 {
		t.Errorf("counting made %v allocations, want none", n)
	}
}

var rewrite = flag.Bool("rewrite", false, "rewrite the table of docs/reference/metrics.md")

const (
	page  = "../../../docs/reference/metrics.md"
	begin = "<!-- families: written by go test ./internal/node/metrics -rewrite -->\n"
	end   = "<!-- end of families -->\n"
)

// The table of the page matches Families.
func TestPageHasAllFamilies(t *testing.T) {
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range Families {
		labels := ""
		if f.Labels != "" {
			labels = "`" + strings.ReplaceAll(f.Labels, ",", "`, `") + "`"
		}
		fmt.Fprintf(&table, "| `%s%s` | %s | %s | %s |\n", Prefix, f.Name, f.Type, labels, f.Meaning)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	is, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("page %s lacks the markers of the table", page)
	}
	if *rewrite {
		if err := os.WriteFile(page, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is != table.String() {
		t.Errorf("page %s is stale: run go test ./internal/node/metrics -run Page -rewrite", page)
	}
}
