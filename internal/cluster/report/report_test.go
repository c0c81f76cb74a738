package report

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/config"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *time.Time {
	t := now.Add(d)
	return &t
}

func TestStatusTable(t *testing.T) {
	s := Status{
		Time: now, Leader: "host_1", Mode: "replace", Read: now.Add(-2 * time.Second), Doubt: "all nodes of the zones a and b fell silent",
		Zones: map[string]Zone{"r:1": {State: "Normal", Ready: 2, NotReady: 1, Waiting: 1, Rate: 0.1}},
		Nodes: []Node{
			{Name: "n0", Zone: "r:1", Health: "Ready", Heard: at(-3 * time.Second)},
			{Name: "n1", Zone: "r:1", Health: "Unknown", Heard: at(-90 * time.Second), Taints: []string{"node.kubernetes.io/unreachable:NoSchedule"},
				Queue: "3 marks", Place: 1, Due: at(8 * time.Second)},
		},
	}
	var out bytes.Buffer
	if err := s.Print(terminal.New(&out, true), output.AsTable); err != nil {
		t.Fatal(err)
	}
	const want = `leader host_1, mode replace, read 2s ago
node silence in doubt, tainting suspended: all nodes of the zones a and b fell silent
zone r:1: Normal, 2 ready, 1 not ready, 1 waiting for a taint, 0.1/s
NODE  HEALTH        HEARD  ZONE  TAINTS                                     QUEUE             WHEN
n0    Ready        3s ago  r:1   -                                          -                 -
n1    Unknown  1m30s ago  r:1   node.kubernetes.io/unreachable:NoSchedule  3 marks taint #1  in 8s
`
	if got := collapseSpaces(out.String()); got != collapseSpaces(want) {
		t.Errorf("status table is\n%swant\n%s", out.String(), want)
	}
}

// collapseSpaces replaces each run of spaces by one.
func collapseSpaces(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestExplanationTable(t *testing.T) {
	e := Explanation{
		Time: now, Node: Node{Name: "n1", Zone: ":", Health: "Unknown", Heard: at(-time.Minute), Since: at(-10 * time.Second), Place: 2},
		Pods: []Pod{
			{Namespace: "d", Name: "a", Taints: []Taint{{Taint: "k:NoExecute", Since: now, Deadline: at(0)}}},
			{Namespace: "d", Name: "b", Taints: []Taint{{Taint: "k:NoExecute", Since: now, Toleration: "any:any forever"}}},
			{Namespace: "d", Name: "c", Stays: "already terminating"},
			{Namespace: "d", Name: "e"},
		},
	}
	var out bytes.Buffer
	if err := e.Print(terminal.New(&out, true), output.AsTable); err != nil {
		t.Fatal(err)
	}
	const want = `node n1, zone :: Unknown, last contact 1m00s ago, not ready since 2026-01-01T11:59:50Z, place 2 in its zone for a NoExecute taint (-)
POD  TAINT                           SINCE                 TOLERATION        DEADLINE
d/a  k:NoExecute                     2026-01-01T12:00:00Z  none              now
d/b  k:NoExecute                     2026-01-01T12:00:00Z  any:any forever  never
d/c  already terminating             -                     -                 never
d/e  node has no NoExecute taint -                         -                 never
`
	if got := collapseSpaces(out.String()); got != collapseSpaces(want) {
		t.Errorf("explanation table is\n%swant\n%s", out.String(), want)
	}
}

func TestFetchErrors(t *testing.T) {
	answer := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != ExplainPath || r.URL.Query().Get("object") != "a/b&c" {
			t.Errorf("request for %s, want %s with object a/b&c", r.URL, ExplainPath)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(answer))
	}))
	address := strings.TrimPrefix(s.URL, "http://")
	for answer = range map[string]bool{`{"error":"this replica is not the leader: ask the leader, x"}`: true, "<html>": true} {
		err := (&server{address, time.Minute}).fetch(t.Context(), ExplainPath, "a/b&c", &Explanation{})
		if err == nil || !strings.Contains(err.Error(), "ask the leader, x") && !strings.Contains(err.Error(), "is it jettison-cluster nodes?") {
			t.Errorf("fetch with response %s = %v, want its error", answer, err)
		}
	}
	s.Close()
	if err := (&server{address, time.Minute}).fetch(t.Context(), StatusPath, "", &Status{}); err == nil || !strings.Contains(err.Error(), "connection refused") ||
		!strings.Contains(err.Error(), "--address") {
		t.Errorf("fetch from a closed port = %v, want connection refused and --address", err)
	}
	err := (&server{"a b:1", time.Minute}).fetch(t.Context(), StatusPath, "", &Status{})
	if want := `--address "a b:1": want HOST:PORT, such as ` + config.DefaultAddress; err == nil || err.Error() != want {
		t.Errorf("fetch from an invalid address = %v, want %q", err, want)
	}
}

// A shell completes the names of the nodes that the instance knows, and no names without an instance.
func TestNodeNamesAreCompleted(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != StatusPath {
			t.Errorf("request for %s, want %s", r.URL, StatusPath)
		}
		_, _ = w.Write([]byte(`{"nodes":[{"name":"n0"},{"name":"n1"}]}`))
	}))
	from := server{address: strings.TrimPrefix(s.URL, "http://")}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	if names, _ := from.nodeNames(cmd, nil, ""); !slices.Equal(names, []string{"n0", "n1"}) {
		t.Errorf("names that complete the first argument = %q, want n0 and n1", names)
	}
	if names, _ := from.nodeNames(cmd, []string{"n0"}, ""); len(names) > 0 {
		t.Errorf("names that complete the second argument = %q, want none", names)
	}
	s.Close()
	if names, how := from.nodeNames(cmd, nil, ""); len(names) > 0 || how != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("names without an instance = %q, directive %d, want none and no files", names, how)
	}
}
