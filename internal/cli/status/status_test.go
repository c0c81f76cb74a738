package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/node/config"
	"jettison/internal/node/nodetest"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
	"jettison/stats"
)

// memoryShort returns the report of a node that runs out of memory.
func memoryShort() *Report {
	now := time.Date(2026, 11, 23, 4, 1, 39, 0, time.UTC)
	earlier := now.Add(-time.Hour)
	signal := func(name stats.Signal, available, capacity uint64, threshold string, limits ...uint64) api.SignalState {
		return api.SignalState{
			Signal: name, Observed: true, Available: available, Capacity: capacity, Time: &now, Limits: limits,
			Threshold: []string{string(name) + "<" + threshold},
		}
	}
	s := &api.State{
		Time: now, Version: "v1.2.3", Runtime: api.RuntimeState{Endpoint: "unix:///run/containerd/containerd.sock"}, Kubelet: true, Disk: "observe",
		Gate: &api.GateState{Asked: true, Admitted: 112, HeldOff: 2},
		Conditions: []api.ConditionState{
			{Type: "DiskPressure", Reason: "KubeletHasNoDiskPressure"},
			{Type: "MemoryPressure", Status: true, Reason: "KubeletHasInsufficientMemory", LastTransitionTime: &earlier},
		},
		Signals: []api.SignalState{
			signal(stats.SignalMemoryAvailable, 90<<20, 4<<30, "100Mi", 100<<20),
			signal(stats.SignalNodeFsAvailable, 40<<30, 100<<30, "10%", 10<<30),
			signal(stats.SignalNodeFsInodesFree, 900_000, 1_000_000, "5%", 50_000),
			signal(stats.SignalMemoryPressureFull, 120_000, stats.ShareUnit, "", 400_000),
			{Signal: stats.SignalSwapAvailable, Reason: "the node has no swap", Threshold: []string{"swap.available<10%"}},
		},
		Pods: api.PodCount{Runtime: 110, UnknownPriority: &api.UnknownPriority{Pods: 4, Unprotected: 3}},
		Evicted: []api.Evicted{
			{Time: earlier, Pod: stats.PodReference{UID: "l", Namespace: "shop", Name: "leaker\x1b[2J"}, Signal: stats.SignalMemoryAvailable, Back: true,
				Explained: "uses 800Mi, over its request of 0"},
		},
		InProgress: []api.EvictionInProgress{
			{Pod: stats.PodReference{UID: "l"}, Signal: stats.SignalMemoryAvailable, Began: earlier, Dead: true}, // not listed twice
			{Pod: stats.PodReference{UID: "w", Namespace: "shop", Name: "web-5d9c7b6d8f-x7k2p"}, Signal: stats.SignalMemoryAvailable, Began: now},
		},
		Met:    []api.MetState{{Signal: stats.SignalMemoryAvailable, Observed: "90Mi", Threshold: "100Mi"}},
		Errors: map[string]string{"signal imagefs.available": "the runtime does not report its image file system"},
	}
	r := &Report{Node: "w1", Agent: s.Version, State: s, Problems: []Problem{}}
	before := *s
	before.Signals = append([]api.SignalState(nil), s.Signals...)
	then := now.Add(-time.Second)
	for i := range before.Signals {
		before.Signals[i].Time = &then
	}
	before.Signals[1].Available += 100 << 20
	before.Signals[3].Available -= 1000
	r.Slopes = slopes(&before, s)
	r.findProblems(nil, nil)
	return r
}

// The screen fits the terminal width and matches the golden files.
func TestScreen(t *testing.T) {
	for _, width := range []int{80, 100, 120} {
		var out bytes.Buffer
		if err := terminal.Fixed(&out, width).Print(memoryShort().screen(min(width, maxWidth), false)...); err != nil {
			t.Fatal(err)
		}
		nodetest.Golden(t, fmt.Sprintf("short-%d.txt", width), out.String())
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > min(width, maxWidth) {
				t.Errorf("terminal width %d: line has %d columns: %q", width, n, line)
			}
		}
	}
}

// A slope predicts a crossing for an amount that falls and a pressure that rises, and none for a threshold that is already met.
func TestSlopes(t *testing.T) {
	r := memoryShort()
	want := map[stats.Signal]float64{stats.SignalNodeFsAvailable: 307.2, stats.SignalMemoryPressureFull: 280}
	for _, s := range r.Slopes {
		seconds, predicted := want[s.Signal]
		if predicted != (s.Seconds != nil) || predicted && (*s.Seconds < seconds-0.1 || *s.Seconds > seconds+0.1) {
			t.Errorf("slope of %s = %+v, want %v seconds to the threshold (0: none)", s.Signal, s, seconds)
		}
	}
	if len(r.Slopes) != 4 {
		t.Errorf("got %d slopes, want 4: %v", len(r.Slopes), r.Slopes)
	}
}

// A node without problems is healthy; notes leave it healthy.
func TestHealthy(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*api.State)
		down    error
		healthy bool
	}{
		"no problem":          {func(*api.State) {}, nil, true},
		"a dry run":           {func(s *api.State) { s.DryRun = true }, nil, true},
		"little headroom":     {func(s *api.State) { s.Headroom = api.HeadroomState{NeededBytes: 2, ThresholdBytes: 1} }, nil, true},
		"unknown priorities":  {func(s *api.State) { s.Pods.UnknownPriority = &api.UnknownPriority{Unprotected: 1} }, nil, true},
		"no agent":            {func(*api.State) {}, errors.New("none"), false},
		"a condition":         {func(s *api.State) { s.Conditions = []api.ConditionState{{Status: true}} }, nil, false},
		"runtime unreachable": {func(s *api.State) { s.Runtime.Lost = true }, nil, false},
		"breaker open":        {func(s *api.State) { s.BreakerOpen = "3 evictions did not help" }, nil, false},
		"undying":             {func(s *api.State) { s.SetAside = []api.AsideState{{}} }, nil, false},
		"source error":        {func(s *api.State) { s.Errors = map[string]string{"memory": "x"} }, nil, false},
		"unexplained":         {func(s *api.State) { s.Unexplained = "x" }, nil, false},
		"invalid file":        {func(s *api.State) { s.Config = &api.ConfigState{Error: "config c.yaml:3: x"} }, nil, false},
		"for the next start":  {func(s *api.State) { s.Config = &api.ConfigState{NextStart: []string{"socket"}} }, nil, true},
	} {
		r := &Report{State: &api.State{}}
		c.change(r.State)
		if r.findProblems(c.down, nil); r.Healthy != c.healthy || !c.healthy && len(r.Problems) == 0 {
			t.Errorf("%s: healthy = %v, want %v; problems: %+v", name, r.Healthy, c.healthy, r.Problems)
		}
	}
}

// The report names an invalid or pending configuration and a missing memory threshold.
func TestConfigurationProblems(t *testing.T) {
	r := memoryShort()
	r.State.Config = &api.ConfigState{From: "c.yaml", Error: "config c.yaml:3: unknown field", NextStart: []string{"listen", "socket"}}
	r.State.Signals, r.Problems = nil, nil
	r.findProblems(nil, nil)
	all := fmt.Sprint(r.Problems)
	for _, want := range []string{"config c.yaml:3: unknown field", "listen, socket", "no threshold for memory.available"} {
		if !strings.Contains(all, want) {
			t.Errorf("problems of the report lack %q: %s", want, all)
		}
	}
}

// Without an agent the report has the signals read from the kernel, and names the agent as a problem.
func TestWithoutAnAgent(t *testing.T) {
	o := options{node: "w1", format: output.AsTable, look: observe.Options{Options: sources.Options{
		Config: &config.Loaded{Config: config.Default()},
	}, Wait: 2 * time.Second}}
	o.look.Config.Socket = "/nonexistent/s.sock"
	var out bytes.Buffer
	err := run(t.Context(), o, terminal.Fixed(&out, 100))
	if !errors.Is(err, ErrUnhealthy) {
		t.Fatal(err)
	}
	for _, want := range []string{"NOT HEALTHY", "agent not answering", "the agent does not answer"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("screen without an agent lacks %q:\n%s", want, out.String())
		}
	}
	if s, err := sources.Open(o.look.Options); err == nil {
		s.Close()
		if !strings.Contains(out.String(), "memory.available ") {
			t.Errorf("screen lacks the signal memory.available:\n%s", out.String())
		}
	}
}

// The report claims that no pod is evicted only if nothing listens on the socket: an agent that denies access or is slow still evicts.
func TestNoEvictionsClaimedOnlyWithoutListener(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("ask the agent: %w", err) }
	const none, unknown = "jettison evicts no pod on this node", "the state of the agent is unknown"
	for name, c := range map[string]struct {
		down       error
		what, do   string
		beyond     string
		mustNotSay string
	}{
		"no socket":        {wrap(syscall.ENOENT), none, "start it", "no agent acts", unknown},
		"no listener":      {wrap(syscall.ECONNREFUSED), none, "start it", "no agent acts", unknown},
		"permission":       {wrap(syscall.EACCES), unknown, "as root or as a member of socketGroup", "unknown whether an agent acts", none},
		"forbidden":        {wrap(&api.StatusError{Status: 403, Text: "no"}), unknown, "as root or as a member of socketGroup", "unknown whether an agent acts", none},
		"slow":             {wrap(context.DeadlineExceeded), unknown, "starved", "unknown whether an agent acts", none},
		"busy":             {wrap(&api.StatusError{Status: 503, Text: "try again"}), unknown, "read the agent's log", "unknown whether an agent acts", none},
		"another version":  {wrap(api.ErrMalformed), unknown, "upgrade both", "unknown whether an agent acts", none},
		"another's answer": {wrap(&api.StatusError{Status: 404, Text: "no such path"}), unknown, "upgrade both", "unknown whether an agent acts", none},
		"hung up":          {wrap(io.EOF), unknown, "read the agent's log", "unknown whether an agent acts", none},
		"none configured":  {errNoSocket, unknown, "set socket", "unknown whether an agent acts", none},
	} {
		r := &Report{State: &api.State{Met: []api.MetState{{Signal: stats.SignalMemoryAvailable}}}}
		r.findProblems(c.down, nil)
		if len(r.Problems) < 2 || r.Healthy {
			t.Fatalf("%s: healthy = %v, want false with at least 2 problems: %+v", name, r.Healthy, r.Problems)
		}
		first, all := r.Problems[0], fmt.Sprint(r.Problems)
		if !strings.Contains(first.What, c.what) || !strings.Contains(first.Do, c.do) || strings.Contains(all, c.mustNotSay) {
			t.Errorf("%s: first problem = %+v, want what %q, do %q, and nowhere %q", name, first, c.what, c.do, c.mustNotSay)
		}
		if strings.Contains(all, "start it") != (c.what == none) || !strings.Contains(r.Problems[1].What, c.beyond) {
			t.Errorf("%s: problems = %s, want %q about the threshold", name, all, c.beyond)
		}
	}
}

// The report advises root only for a permission error.
func TestRootAdvisedForPermissionErrors(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EPERM: true, syscall.EACCES: true, syscall.ENOENT: false, syscall.EIO: false, context.DeadlineExceeded: false,
	} {
		r := &Report{}
		r.findProblems(syscall.ECONNREFUSED, fmt.Errorf("read: %w", err))
		if do := r.Problems[1].Do; strings.Contains(do, "as root") != want || !strings.Contains(do, "jettison check") {
			t.Errorf("error %v: do = %q, want advice for root: %v, and jettison check", err, do, want)
		}
	}
}

// Pods at their own limits take one line, whatever their number.
func TestPodsAtTheirOwnLimits(t *testing.T) {
	for n, want := range map[int]string{
		1:   "pod shop/p0 is at its own memory limit",
		2:   "pods at their own memory limit: shop/p0, shop/p1",
		110: "pods at their own memory limit: shop/p0, shop/p1, shop/p2 and 107 more",
	} {
		r := &Report{State: &api.State{}}
		for i := range n {
			pod := stats.PodReference{Namespace: "shop", Name: fmt.Sprintf("p%d", i)}
			r.State.AtOwnLimit = append(r.State.AtOwnLimit, api.LimitState{Pod: pod})
		}
		if r.findProblems(nil, nil); !r.Healthy || len(r.Problems) != 1 || r.Problems[0].What != want {
			t.Errorf("%d pods at their limits: problems = %+v, want one note %q", n, r.Problems, want)
		}
	}
}

// The note on hold-offs has their number and the longest one with its reason.
func TestHoldOffs(t *testing.T) {
	until := time.Unix(1700000000, 0).UTC()
	got := describeHolds([]api.HoldState{
		{Owner: &api.HoldOwner{Kind: "DaemonSet", Namespace: "shop", Pod: "agent-x"}, Until: until, Times: 2, Reason: "of it"},
		{UID: "a", Until: until.Add(-time.Second), Times: 1},
		{UID: "b", Owner: &api.HoldOwner{Kind: "DaemonSet", Namespace: "shop", Pod: "agent-x"}, Until: until, Times: 2, Reason: "low on\nmemory"},
	})
	want := "held off: 2 evicted pods; longest: shop/agent-x of a DaemonSet and its replacement, 2nd time, until " +
		output.Time(until) + ": low on memory"
	if got != want {
		t.Errorf("describeHolds = %q, want %q", got, want)
	}
	for n, want := range map[int]string{1: "1st", 3: "3rd", 11: "11th", 12: "12th", 21: "21st", 113: "113th"} {
		if got := ordinal(n); got != want {
			t.Errorf("ordinal(%d) = %s, want %s", n, got, want)
		}
	}
}
