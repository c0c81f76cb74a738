package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"jettison/api"
	"jettison/internal/base/terminal"
	"jettison/internal/kubectl/onnode"
	"jettison/stats"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // as in main
	os.Exit(m.Run())
}

// run runs a command line and returns its output. Commands in pods write to files.
func (s *server) run(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	dir := s.t.TempDir()
	var files [2]*os.File
	for i, name := range []string{"out", "err"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			s.t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		files[i] = f
	}
	var out, errs strings.Builder
	code = execute(s.t.Context(), append(args[:1:1], append([]string{"--kubeconfig=" + s.kubeconfig()}, args[1:]...)...),
		terminal.Fixed(&out, 0), &errs, onnode.Streams{Out: files[0], Err: files[1]})
	for i, to := range []*strings.Builder{&out, &errs} {
		text, err := os.ReadFile(files[i].Name())
		if err != nil {
			s.t.Fatal(err)
		}
		to.Write(text)
	}
	return out.String(), errs.String(), code
}

func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("output of %s lacks %q, want it in\n%s", what, part, text)
		}
	}
}

// large returns a server with 1,000 nodes, all with agent and bridge.
func large(t testing.TB) *server {
	const nodes = 1000
	s := newServer(t)
	now := time.Now()
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		state := stateOf(now.Add(-time.Minute), uint64(1+i)<<20)
		if i == 7 {
			state.BreakerOpen = "three pods died"
		}
		s.addNode(name, s.bridged(now, name, state)...)
		s.addAgent(name, running)
	}
	for i := range nodes / 10 {
		s.evicted(now.Add(-time.Minute), fmt.Sprintf("node-%04d", i), fmt.Sprint("leaker-", i))
	}
	return s
}

// The table of 1,000 nodes takes one list of each kind, in pages of 500, and no request for a node.
func TestStatusListsEachKindOnce(t *testing.T) {
	s := large(t)
	out, errs, code := s.run("status")
	if code != 0 || errs != "" {
		t.Fatalf("exit code of status = %d, want 0: %s", code, errs)
	}
	lines := strings.Split(out, "\n")
	contains(t, "summary", lines[0], "1000 nodes: 1000 with a running agent, 0 under pressure, 1 with problems")
	contains(t, "first row", lines[3], "node-0007", "v0.1.0", "memory.available<100Mi", "-1.1%", "12% 3% -", "1m ago, memory", "EvictionsStopped")
	want := map[string]int{"list nodes": 2, "list pods": 2, "list leases": 2, "list events": 1}
	if got := s.counts(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("requests for 1,000 nodes = %v, want %v", got, want)
	}
}

func BenchmarkStatus(b *testing.B) {
	s := large(b)
	for b.Loop() {
		if _, errs, code := s.run("status"); code != 0 {
			b.Fatalf("exit code of status = %d, want 0: %s", code, errs)
		}
	}
}

// With agents only, bridges only, or without permissions, the columns without a source are unknown,
// and the last lines say why.
func TestStatusSaysWhatIsUnknown(t *testing.T) {
	now := time.Now()
	agents := func(s *server) { s.addNode("a"); s.addAgent("a", running, "--dry-run") }
	bridges := func(s *server) { s.addNode("a", s.bridged(now, "a", stateOf(now, 1<<30))...) }
	both := func(s *server) { bridges(s); s.addAgent("a", running) }
	old := func(s *server) { s.addNode("a", s.bridged(now, "a", stateOf(now.Add(-time.Hour), 1<<30))...) }
	for name, c := range map[string]struct {
		make      func(*server)
		forbidden []string
		row       []string // cells of the row, from AGENT on
		want      []string // parts of the output
	}{
		"neither": {func(s *server) { s.addNode("a") }, nil, []string{"no pod", "-", "-", "-", "-", "-", "-", "none"},
			[]string{"1 node: 0 with a running agent", "unknown PRESSURE: no bridge has written them (a)",
				"unknown NEAREST THRESHOLD, HEADROOM, STALLED: no bridge has reported it (a)", "unknown LAST EVICTION: no bridge reports evictions"}},
		"agents only": {agents, nil, []string{"image v0.1.0, dry run", "-", "-", "-", "-", "-", "-", "none"},
			[]string{"1 node: 1 with a running agent, 1 in a dry run"}},
		"bridges only": {bridges, nil, []string{"v0.1.0", "none", "memory.available<100Mi", "11.3%", "924Mi", "12% 3% -", "none", "none"},
			[]string{"1 node: 1 with a running agent"}},
		"both": {both, nil, []string{"v0.1.0", "none", "memory.available<100Mi", "11.3%", "924Mi", "12% 3% -", "none", "none"}, nil},
		"an old load": {old, nil, []string{"no pod", "none", "-", "-", "-", "-", "-", "no load: the bridge reported it 1h ago"},
			[]string{"unknown NEAREST THRESHOLD, HEADROOM, STALLED: the bridge reported it 1h ago"}},
		"no permission": {both, []string{"pods", "leases", "events"}, []string{"-", "none", "-", "-", "-", "-", "-", "none"},
			[]string{"1 node: 0 with a running agent, 1 unknown", "unknown AGENT: cannot list its pods: ", `cannot list resource "pods"`,
				"STALLED: cannot list leases: ", "unknown LAST EVICTION: cannot list events: "}},
		"a broken agent": {func(s *server) {
			s.addNode("a")
			s.addAgent("a", v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}})
		}, nil, []string{"image v0.1.0, CrashLoopBackOff", "-", "-", "-", "-", "-", "-", "agent CrashLoopBackOff (restarts: 1)"}, nil},
	} {
		s := newServer(t)
		c.make(s)
		s.forbidden = c.forbidden
		out, errs, code := s.run("status")
		if code != 0 {
			t.Errorf("%s: exit code of status = %d, want 0: %s", name, code, errs)
		}
		contains(t, name, out, c.want...)
		row := ""
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "a  ") {
				row = line
			}
		}
		var cells []string
		for cell := range strings.SplitSeq(row, "  ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}
		if len(cells) == 0 || !slices.Equal(cells[1:], c.row) {
			t.Errorf("%s: cells %q, want a and %q", name, cells, c.row)
		}
	}
	s := newServer(t)
	s.forbidden = []string{"nodes"}
	if out, errs, code := s.run("status"); code != 1 || out != "" || !strings.Contains(errs, "kubectl jettison: list nodes: ") {
		t.Errorf("without nodes: exit code %d, output %q, error %q, want 1 and the list of nodes", code, out, errs)
	}
}

// The formats of kubectl, and the selectors.
func TestStatusFormats(t *testing.T) {
	s, now := newServer(t), time.Now()
	for _, name := range []string{"a", "b"} {
		s.addNode(name, s.bridged(now, name, stateOf(now, 1<<30))...)
	}
	s.nodes[1].Labels["pool"], s.nodes[1].Status.Conditions[0].Status = "b", v1.ConditionUnknown
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-o", "name"}, "node/b\nnode/a\n"},
		{[]string{"-o", "name", "--problems"}, "node/b\n"},
		{[]string{"-o", "name", "-l", "pool=a"}, "node/a\n"},
		{[]string{"-o", "jsonpath={range .nodes[*]}{.name} {.load.nearest.signal};{end}"}, "b memory.available;a memory.available;\n"},
		{[]string{"-o", "jsonpath=.nodes[0].problems"}, `["node not ready"]` + "\n"},
	} {
		if out, errs, code := s.run(append([]string{"status"}, c.args...)...); code != 0 || out != c.want {
			t.Errorf("status %q = %q, exit code %d, %s, want %q", c.args, out, code, errs, c.want)
		}
	}
	out, _, _ := s.run("status", "-o", "json")
	var got struct {
		Nodes []struct {
			Name       string
			Conditions []struct{ Type, Status string }
			Load       api.NodeLoad
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Nodes) != 2 || len(got.Nodes[0].Conditions) != 3 || *got.Nodes[0].Load.HeadroomBytes != 924<<20 {
		t.Errorf("status -o json: %v, %+v, want two nodes", err, got)
	}
	for _, args := range [][]string{{"-o", "xml"}, {"-o", "jsonpath={"}, {"-w", "-o", "json"}, {"-l", "a=,="}, {"-n", "a/b"}, {"--lease-namespace="}, {"-w", "a"}} {
		if out, errs, code := s.run(append([]string{"status"}, args...)...); code != 2 || out != "" || errs == "" {
			t.Errorf("status %q: exit code %d, output %q, error %q, want a usage error", args, code, out, errs)
		}
	}
}

// Names and messages in the API come from outside: no terminal escape reaches the output.
func TestOutputIsPrintable(t *testing.T) {
	s, now := newServer(t), time.Now()
	state := stateOf(now, 1<<30)
	state.Version, state.Signals[0].Threshold[0] = "v1\x1b[2J", "memory\x1b]0;title\a"
	s.addNode("a", s.bridged(now, "a", state)...)
	s.addAgent("a", running)
	s.agents[0].Spec.Containers[0].Image = "x:\x1b[31m"
	s.events = append(s.events, v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, Reason: "EvictionOutlived", Message: "hidden\x1b[8m\u009b",
		InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "x\x1b[1A"}, Source: v1.EventSource{Component: "jettison", Host: "a"}, LastTimestamp: metav1.NewTime(now)})
	s.exec = func(string, []string) (string, string, int) { return "", "bad\x1b[2J", 1 }
	for _, args := range [][]string{{"status"}, {"status", "-o", "wide"}, {"status", "-o", "json"}, {"status", "-o", "yaml"},
		{"status", "-o", "jsonpath={.nodes[*]}"}, {"report"}, {"report", "-o", "wide"}} {
		out, errs, code := s.run(args...)
		if code != 0 || strings.ContainsAny(out+errs, "\x1b\a\u009b") || out == "" {
			t.Errorf("%q: exit code %d, want 0 and no control characters in %q %q", args, code, out, errs)
		}
	}
}

// A command on a node runs in the agent's pod, with the arguments after the node, and its output and
// exit code are those of the command.
func TestCommandsRunInTheAgentsPod(t *testing.T) {
	s := newServer(t)
	var mu sync.Mutex
	var ran []string
	s.exec = func(pod string, args []string) (string, string, int) {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, pod+": "+strings.Join(args, " "))
		return "\x1b[1mout\n", "reason\n", 3
	}
	s.addNode("a")
	s.addNode("none")
	s.addNode("dead")
	s.agents = append(s.agents, v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "old", Labels: map[string]string{"app.kubernetes.io/name": "jettison"}},
		Spec: v1.PodSpec{NodeName: "a"}, Status: v1.PodStatus{Phase: v1.PodFailed}})
	s.addAgent("a", running)
	s.addAgent("dead", v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}})
	for _, command := range []string{"status", "top", "explain", "records", "check"} {
		out, errs, code := s.run(command, "a", "memory.available", "-o", "json", "-n", "1")
		mu.Lock()
		last := ran[len(ran)-1]
		mu.Unlock()
		if want := "jettison-a: /jettison " + command + " memory.available -o json -n 1"; last != want {
			t.Errorf("%s ran %q, want %q", command, last, want)
		}
		if out != "\x1b[1mout\n" || errs != "reason\n" || code != 3 {
			t.Errorf("%s: output %q, error %q, exit code %d, want those of the command in the pod", command, out, errs, code)
		}
	}
	for _, c := range []struct {
		node string
		args []string
		code int
		want string
	}{
		{"none", nil, 1, "node none has no pod of the agent in namespace kube-system"},
		{"dead", nil, 1, "does not run in pod kube-system/jettison-dead of node dead (ImagePullBackOff)"},
		{"missing", nil, 1, `node "missing" does not exist`},
		{"a", []string{"--context=prod"}, 2, "--context: write flags of kubectl before the node"},
		{"A_", nil, 2, `node "A_"`},
	} {
		if out, errs, code := s.run(append([]string{"explain", c.node}, c.args...)...); code != c.code || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("explain %s %v: exit code %d, output %q, error %q, want %d and %q", c.node, c.args, code, out, errs, c.code, c.want)
		}
	}
	s.mu.Lock()
	s.forbidden = []string{"pods/exec"}
	s.mu.Unlock()
	if _, errs, code := s.run("explain", "a"); code != 1 || !strings.Contains(errs, "get and create on pods/exec") {
		t.Errorf("without pods/exec: exit code %d, error %q, want 1 and the missing permission", code, errs)
	}
}

// A dry run's evictions are in the records only. A node that does not answer is named, and its
// evictions are from events.
func TestReport(t *testing.T) {
	s, now := newServer(t), time.Now()
	for _, name := range []string{"dry", "real", "hung", "broken", "bare"} {
		s.addNode(name)
		if name != "bare" {
			s.addAgent(name, running)
		}
		s.evicted(now.Add(-10*time.Minute), name, "from-event")
	}
	s.evicted(now.Add(-59*time.Minute), "hung", "too-old")
	line := func(pod string, signal stats.Signal, dry bool, outcome api.Outcome) string {
		text, err := json.Marshal(api.Record{Version: 1, ID: "20261121T0703-" + pod, Pod: api.Victim{UID: "u", Namespace: "shop", Name: pod}, Signal: signal,
			Began: api.Stamp{Time: now.Add(-time.Minute)}, DryRun: dry, Outcome: outcome})
		if err != nil {
			t.Error(err)
		}
		return string(text) + "\n"
	}
	s.exec = func(pod string, args []string) (string, string, int) {
		if want := "/jettison records --since " + now.Add(-30 * time.Minute).UTC().Format(time.RFC3339)[:16]; !strings.HasPrefix(strings.Join(args, " "), want) ||
			!strings.HasSuffix(strings.Join(args, " "), " -o jsonl") {
			t.Errorf("command in the pod %q, want %q", args, want)
		}
		switch pod {
		case "jettison-dry":
			return line("leaker", "memory.available", true, api.OutcomeDryRun) + line("leaker", "memory.available", true, api.OutcomeDryRun) +
				line("hog", "nodefs.available", true, api.OutcomeDryRun), "jettison: records: skipped 1 corrupt lines\n", 0
		case "jettison-real":
			return line("web", "memory.available", false, api.OutcomeBack) + line("lost", "", false, api.OutcomeLost), "", 0
		case "jettison-broken":
			return "", "jettison: unknown flag: --since\n", 2
		}
		return "", "", -1
	}
	out, errs, code := s.run("report", "--since=30m", "--timeout=2s")
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d, error %q, want 0", code, errs)
	}
	contains(t, "report", out, "4 evictions, 3 that a dry run would have evicted; records of 2 of 5 nodes\n", "shop/leaker", "shop/hog",
		"records of 1 node unknown, evictions from events only: no answer within 2s: hung\n",
		"records of 1 node unknown, evictions from events only: jettison records: exit code 2: jettison: unknown flag: --since: broken\n",
		"records of 1 node unknown, evictions from events only: no pod of the agent in namespace kube-system: bare\n",
		"warning: dry: jettison: records: skipped 1 corrupt lines\n")
	rows := map[string]bool{}
	for l := range strings.Lines(out) {
		rows[strings.Join(strings.Fields(l)[:min(3, len(strings.Fields(l)))], " ")] = true
	}
	for _, row := range []string{"dry 0 3", "real 1 0", "hung 1 0", "shop 4 3", "memory.available 1 2", "memory 3 0", "nodefs.available 0 1", "shop/leaker 0 2", "shop/from-event 3 0"} {
		if !rows[row] {
			t.Errorf("report lacks the row %q:\n%s", row, out)
		}
	}
	if strings.Contains(out, "too-old") {
		t.Errorf("report has an event before --since:\n%s", out)
	}
	before := s.counts()["create pods/exec"]
	out, _, code = s.run("report", "--events-only", "--since=24h", "hung", "dry")
	contains(t, "report of events", out, "3 evictions, 0 that a dry run would have evicted; records of 0 of 2 nodes", "shop/too-old")
	if after := s.counts()["create pods/exec"]; code != 0 || after != before {
		t.Errorf("--events-only: exit code %d, %d commands in pods, want 0 and none", code, after-before)
	}
	for _, args := range [][]string{{"--since=yesterday"}, {"--since=-1h"}, {"--timeout=0s"}, {"-l", "a=b", "hung"}} {
		if _, errs, code := s.run(append([]string{"report"}, args...)...); code != 2 || errs == "" {
			t.Errorf("report %q: exit code %d, want a usage error", args, code)
		}
	}
	if _, errs, code := s.run("report", "missing"); code != 1 || !strings.Contains(errs, `node "missing" does not exist`) {
		t.Errorf("report of a missing node: exit code %d, error %q", code, errs)
	}
}

// With -w the table is printed again after a change of any kind. Objects are listed once.
func TestWatch(t *testing.T) {
	s := newServer(t)
	s.addNode("a")
	s.addAgent("a", running)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan int, 1)
	config := s.kubeconfig()
	go func() {
		ended <- execute(ctx, []string{"status", "--kubeconfig=" + config, "-w"}, terminal.Fixed(w, 0), io.Discard, onnode.Streams{})
		_ = w.Close()
	}()
	tables := make(chan string)
	go func() {
		defer close(tables)
		all, buffer := "", make([]byte, 1<<16)
		for {
			n, err := r.Read(buffer)
			all += string(buffer[:n])
			for {
				table, rest, ok := strings.Cut(all, strings.Repeat("-", 80)+"\n")
				if !ok {
					break
				}
				tables <- table
				all = rest
			}
			if err != nil {
				return
			}
		}
	}()
	until := func(part string) {
		t.Helper()
		deadline := time.After(60 * time.Second)
		last := ""
		for !strings.Contains(last, part) {
			select {
			case last = <-tables:
			case <-deadline:
				t.Fatalf("no table with %q within 60 s, last:\n%s", part, last)
			}
		}
	}
	until("image v0.1.0")
	s.mu.Lock()
	broken := s.agents[0]
	s.mu.Unlock()
	broken.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	broken.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "agent", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "OOMKilled"}}}}
	s.notify("MODIFIED", broken)
	until("OOMKilled")
	s.notify("DELETED", broken)
	until("no pod")
	cancel()
	go func() {
		for range tables { // until the command ends
		}
	}()
	if code := <-ended; code != 0 {
		t.Errorf("exit code after the end of -w = %d, want 0", code)
	}
	if got := s.counts(); got["list pods"] != 1 || got["list nodes"] != 1 {
		t.Errorf("requests of -w = %v, want one list of each kind", got)
	}
}

// A file of $KUBECONFIG that is a device is an error: /dev/zero has no end.
func TestKubeconfigIsADevice(t *testing.T) {
	t.Setenv("KUBECONFIG", "/dev/null")
	var stderr strings.Builder
	code := execute(t.Context(), []string{"status"}, terminal.Fixed(io.Discard, 0), &stderr, onnode.Streams{})
	if want := "kubectl jettison: kubeconfig: /dev/null is a device, want a file\n"; code != 2 || stderr.String() != want {
		t.Errorf("exit code %d, error %q, want 2 and %q", code, stderr.String(), want)
	}
}
