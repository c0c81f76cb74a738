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

// short is a node that runs out of memory.
func short() *Report {
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
			{Time: earlier, Pod: stats.PodReference{Namespace: "shop", Name: "leaker\x1b[2J"}, Signal: stats.SignalMemoryAvailable, Back: true,
				Explained: "uses 800Mi, over its request of 0"},
		},
		Underway: []api.UnderwayState{{Pod: stats.PodReference{Namespace: "shop", Name: "web-5d9c7b6d8f-x7k2p"}, Signal: stats.SignalMemoryAvailable, Began: now}},
		Errors:   map[string]string{"signal imagefs.available": "the runtime does not tell where its images are"},
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

// The screen fits, whatever the terminal's width, and holds what a person looks for.
func TestTheScreen(t *testing.T) {
	for _, width := range []int{80, 100, 120} {
		var out bytes.Buffer
		if err := terminal.Fixed(&out, width).Print(short().screen(min(width, widest), false)...); err != nil {
			t.Fatal(err)
		}
		nodetest.Golden(t, fmt.Sprintf("short-%d.txt", width), out.String())
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > min(width, widest) {
				t.Errorf("width %d: a line of %d: %q", width, n, line)
			}
		}
	}
}

// A slope tells when a threshold is crossed: of an amount when it falls, of a pressure when it rises, and never of one that is crossed.
func TestSlopes(t *testing.T) {
	r := short()
	want := map[stats.Signal]float64{stats.SignalNodeFsAvailable: 307.2, stats.SignalMemoryPressureFull: 280}
	for _, s := range r.Slopes {
		seconds, falls := want[s.Signal]
		if falls != (s.Seconds != nil) || falls && (*s.Seconds < seconds-0.1 || *s.Seconds > seconds+0.1) {
			t.Errorf("%s: %v", s.Signal, s)
		}
	}
	if len(r.Slopes) != 4 {
		t.Errorf("%v", r.Slopes)
	}
}

// Healthy is a node of which nothing is wrong; what should be known of it does not make it ill.
func TestHealthy(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*api.State)
		down    error
		healthy bool
	}{
		"well":                {func(*api.State) {}, nil, true},
		"a dry run":           {func(s *api.State) { s.DryRun = true }, nil, true},
		"little headroom":     {func(s *api.State) { s.Headroom = api.HeadroomState{NeededBytes: 2, ThresholdBytes: 1} }, nil, true},
		"unknown priorities":  {func(s *api.State) { s.Pods.UnknownPriority = &api.UnknownPriority{Unprotected: 1} }, nil, true},
		"no agent":            {func(*api.State) {}, errors.New("none"), false},
		"a condition":         {func(s *api.State) { s.Conditions = []api.ConditionState{{Status: true}} }, nil, false},
		"the runtime is lost": {func(s *api.State) { s.Runtime.Lost = true }, nil, false},
		"the breaker":         {func(s *api.State) { s.Stopped = "3 evictions did not help" }, nil, false},
		"undying":             {func(s *api.State) { s.SetAside = []api.AsideState{{}} }, nil, false},
		"blind":               {func(s *api.State) { s.Errors = map[string]string{"memory": "x"} }, nil, false},
		"unexplained":         {func(s *api.State) { s.Unexplained = "x" }, nil, false},
		"a wrong file":        {func(s *api.State) { s.Config = &api.ConfigState{Error: "config c.yaml:3: x"} }, nil, false},
		"for the next start":  {func(s *api.State) { s.Config = &api.ConfigState{NextStart: []string{"socket"}} }, nil, true},
	} {
		r := &Report{State: &api.State{}}
		c.change(r.State)
		if r.findProblems(c.down, nil); r.Healthy != c.healthy || !c.healthy && len(r.Problems) == 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// What the agent does not do is said: it holds another configuration than its file, or nobody asked it to watch memory.
func TestWhatTheAgentDoesNotDo(t *testing.T) {
	r := short()
	r.State.Config = &api.ConfigState{From: "c.yaml", Error: "config c.yaml:3: unknown field", NextStart: []string{"listen", "socket"}}
	r.State.Signals, r.Problems = nil, nil
	r.findProblems(nil, nil)
	all := fmt.Sprint(r.Problems)
	for _, want := range []string{"config c.yaml:3: unknown field", "listen, socket", "no threshold is for memory.available"} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing says %q: %s", want, all)
		}
	}
}

// Where no agent answers the kernel does: there are signals, and it is said that the agent is down.
func TestWithoutAnAgent(t *testing.T) {
	o := options{node: "w1", format: output.AsTable, look: observe.Options{Options: sources.Options{
		Config: &config.Loaded{Config: config.Default()},
	}}}
	o.look.Config.Socket = "/nonexistent/s.sock"
	var out bytes.Buffer
	err := run(t.Context(), o, terminal.Fixed(&out, 100))
	if !errors.Is(err, ErrUnhealthy) {
		t.Fatal(err)
	}
	for _, want := range []string{"NOT HEALTHY", "no agent answers", "the agent does not answer"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if s, err := sources.Open(o.look.Options); err == nil {
		s.Close()
		if !strings.Contains(out.String(), "memory.available ") {
			t.Errorf("no signals in\n%s", out.String())
		}
	}
}

// That nobody is evicted is said only where nothing listens: an agent that may not be asked, or is slow, evicts all the same.
func TestOnlyWhereNothingListensNobodyIsEvicted(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("ask the agent: %w", err) }
	const none, unknown = "nobody is evicted here", "what the agent does is not known"
	for name, c := range map[string]struct {
		down       error
		what, do   string
		beyond     string
		mayNotStay string
	}{
		"no socket":        {wrap(syscall.ENOENT), none, "start it", "no agent acts", unknown},
		"no listener":      {wrap(syscall.ECONNREFUSED), none, "start it", "no agent acts", unknown},
		"permission":       {wrap(syscall.EACCES), unknown, "as root or as a member of socketGroup", "not known", none},
		"forbidden":        {wrap(&api.StatusError{Status: 403, Text: "no"}), unknown, "as root or as a member of socketGroup", "not known", none},
		"slow":             {wrap(context.DeadlineExceeded), unknown, "starved", "not known", none},
		"busy":             {wrap(&api.StatusError{Status: 503, Text: "try again"}), unknown, "see its log", "not known", none},
		"another version":  {wrap(api.ErrMalformed), unknown, "upgrade both", "not known", none},
		"another's answer": {wrap(&api.StatusError{Status: 404, Text: "no such path"}), unknown, "upgrade both", "not known", none},
		"hung up":          {wrap(io.EOF), unknown, "see its log", "not known", none},
		"none configured":  {errNoSocket, unknown, "set socket", "not known", none},
	} {
		r := &Report{State: &api.State{Met: []api.MetState{{Signal: stats.SignalMemoryAvailable}}}}
		r.findProblems(c.down, nil)
		if len(r.Problems) < 2 || r.Healthy {
			t.Fatalf("%s: %+v", name, r.Problems)
		}
		first, all := r.Problems[0], fmt.Sprint(r.Problems)
		if !strings.Contains(first.What, c.what) || !strings.Contains(first.Do, c.do) || strings.Contains(all, c.mayNotStay) {
			t.Errorf("%s: %+v", name, first)
		}
		if strings.Contains(all, "start it") != (c.what == none) || !strings.Contains(r.Problems[1].What, c.beyond) {
			t.Errorf("%s: %s", name, all)
		}
	}
}

// To be root is advised where that is what was missing.
func TestRootIsAdvisedWhereItHelps(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EPERM: true, syscall.EACCES: true, syscall.ENOENT: false, syscall.EIO: false, context.DeadlineExceeded: false,
	} {
		r := &Report{}
		r.findProblems(syscall.ECONNREFUSED, fmt.Errorf("read: %w", err))
		if do := r.Problems[1].Do; strings.Contains(do, "as root") != want || !strings.Contains(do, "jettison check") {
			t.Errorf("%v: %q", err, do)
		}
	}
}

// Pods at limits of their own are one line, however many there are.
func TestManyPodsAtTheirOwnLimits(t *testing.T) {
	for n, want := range map[int]string{
		1:   "pod shop/p0 is at a memory limit of its own",
		2:   "2 pods are at memory limits of their own: shop/p0, shop/p1",
		110: "110 pods are at memory limits of their own: shop/p0, shop/p1, shop/p2 and 107 more",
	} {
		r := &Report{State: &api.State{}}
		for i := range n {
			pod := stats.PodReference{Namespace: "shop", Name: fmt.Sprintf("p%d", i)}
			r.State.AtOwnLimit = append(r.State.AtOwnLimit, api.LimitState{Pod: pod})
		}
		if r.findProblems(nil, nil); !r.Healthy || len(r.Problems) != 1 || r.Problems[0].What != want {
			t.Errorf("%d: %+v", n, r.Problems)
		}
	}
}

// Who is kept out is said, with what brings it back.
func TestWhoIsKeptOut(t *testing.T) {
	until := time.Unix(1700000000, 0).UTC()
	got := heldOff([]api.HoldState{
		{Owner: &api.HoldOwner{Kind: "DaemonSet", Namespace: "shop", Pod: "agent-x"}, Until: until, Times: 2, Reason: "of it"},
		{UID: "a", Until: until.Add(-time.Second), Times: 1},
		{UID: "b", Owner: &api.HoldOwner{Kind: "DaemonSet", Namespace: "shop", Pod: "agent-x"}, Until: until, Times: 2, Reason: "low on\nmemory"},
	})
	want := "2 evicted pods are kept out, shop/agent-x of a DaemonSet, and what that makes in its place, for the 2nd time until " +
		output.Time(until) + ": low on memory"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for n, want := range map[int]string{1: "1st", 3: "3rd", 11: "11th", 12: "12th", 21: "21st", 113: "113th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
