package scrape

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"jettison/internal/bridge/kube"
	"jettison/internal/node/metrics"
)

// The text has every family with its header and at least one sample, and the page of the metrics
// lists every family.
func TestTextHasAllFamilies(t *testing.T) {
	var r Requests
	r.Add("patch", "pods/status", kube.Denied)
	r.Add("patch", "pods/status", kube.Denied)
	r.Add("create", "events", kube.None)
	text := string((&Source{Version: "1.2", Requests: &r, Pending: func() int64 { return 3 }}).Text())
	for _, line := range []string{
		`jettison_bridge_build_info{version="1.2"} 1`,
		`jettison_bridge_evictions_pending 3`,
		`jettison_bridge_requests_total{verb="create",resource="events",result="ok"} 1`,
		`jettison_bridge_requests_total{verb="patch",resource="pods/status",result="denied"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("metrics lack the line %s:\n%s", line, text)
		}
	}
	if !strings.Contains(text, "\nprocess_resident_memory_bytes ") {
		t.Errorf("metrics lack those of the process:\n%s", text)
	}
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Families {
		name, labels := metrics.Prefix+f.Name, ""
		if !strings.Contains(text, "# TYPE "+name+" "+f.Type+"\n"+name) {
			t.Errorf("family %s has no sample:\n%s", name, text)
		}
		if f.Labels != "" {
			labels = "`" + strings.ReplaceAll(f.Labels, ",", "`, `") + "`"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, f.Type, labels, f.Meaning); !strings.Contains(string(page), row) {
			t.Errorf("docs/reference/metrics.md lacks the row %s", row)
		}
	}
}

// Without an address nothing listens. An address without a port is rejected before the start.
func TestAddress(t *testing.T) {
	s, err := Listen(t.Context(), "", &Source{})
	if s != nil || err != nil {
		t.Errorf("listen without an address = %v, %v, want no server", s, err)
	}
	s.Close()
	for address, want := range map[string]string{"": "", ":10271": "", "[::1]:1": "", "127.0.0.1": "want HOST:PORT", "a:": "want HOST:PORT"} {
		if err := ValidateAddress(address); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("validate %q: error %v, want %q", address, err, want)
		}
	}
	if _, err := Listen(context.Background(), "192.0.2.1:1", &Source{}); err == nil || !strings.Contains(err.Error(), "metrics address: ") {
		t.Errorf("listen on an address of another machine: error %v, want one of the metrics address", err)
	}
}
