package report

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *time.Time {
	t := now.Add(d)
	return &t
}

func TestTheStatusAsATable(t *testing.T) {
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
	const want = `host_1 leads, mode replace, read 2s ago
silence is doubted, no node is tainted: all nodes of the zones a and b fell silent
zone r:1: Normal, 2 ready, 1 not, 1 wait for a taint, 0.1 a second
NODE  HEALTH        HEARD  ZONE  TAINTS                                     QUEUE             WHEN
n0    Ready        3s ago  r:1   -                                          -                 -
n1    Unknown  1m30s ago  r:1   node.kubernetes.io/unreachable:NoSchedule  3 marks taint #1  in 8s
`
	if got := collapseSpaces(out.String()); got != collapseSpaces(want) {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// squeezed is a text in which so many spaces are one.
func collapseSpaces(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestAnExplanationAsATable(t *testing.T) {
	e := Explanation{
		Time: now, Node: Node{Name: "n1", Zone: ":", Health: "Unknown", Heard: at(-time.Minute), Since: at(-10 * time.Second), Place: 2},
		Pods: []Pod{
			{Namespace: "d", Name: "a", Taints: []Taint{{Taint: "k:NoExecute", Since: now, Deadline: at(0)}}},
			{Namespace: "d", Name: "b", Taints: []Taint{{Taint: "k:NoExecute", Since: now, Toleration: "any:any for ever"}}},
			{Namespace: "d", Name: "c", Stays: "it is going already"},
			{Namespace: "d", Name: "e"},
		},
	}
	var out bytes.Buffer
	if err := e.Print(terminal.New(&out, true), output.AsTable); err != nil {
		t.Fatal(err)
	}
	const want = `node n1, zone :: Unknown, heard of 1m00s ago, not ready since 2026-01-01T11:59:50Z, number 2 of its zone to get a NoExecute taint (-)
POD  TAINT                           SINCE                 TOLERATION        HAS TO GO
d/a  k:NoExecute                     2026-01-01T12:00:00Z  none              now
d/b  k:NoExecute                     2026-01-01T12:00:00Z  any:any for ever  never
d/c  it is going already             -                     -                 never
d/e  its node has no NoExecute taint -                     -                 never
`
	if got := collapseSpaces(out.String()); got != collapseSpaces(want) {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestWhatIsAskedDoesNotAnswer(t *testing.T) {
	answer := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != ExplainPath || r.URL.Query().Get("object") != "a/b&c" {
			t.Error(r.URL)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(answer))
	}))
	address := strings.TrimPrefix(s.URL, "http://")
	for answer = range map[string]bool{`{"error":"this replica is not the leader: ask the leader, x"}`: true, "<html>": true} {
		err := Fetch(t.Context(), address, ExplainPath, "a/b&c", &Explanation{})
		if err == nil || !strings.Contains(err.Error(), "ask the leader, x") && !strings.Contains(err.Error(), "is it jettison-cluster nodes?") {
			t.Error(err)
		}
	}
	s.Close()
	if err := Fetch(t.Context(), address, StatusPath, "", &Status{}); err == nil || !strings.Contains(err.Error(), "connection refused") ||
		!strings.Contains(err.Error(), "--address") {
		t.Error(err)
	}
}
