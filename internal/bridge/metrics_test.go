package bridge

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// freeAddress returns an address of loopback that no other test or program listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.77.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// The bridge serves its metrics: a denied status write stays pending and is counted, and other paths
// do not exist.
func TestMetricsAreServed(t *testing.T) {
	c, a := newCluster(t), newAgent(t)
	pod := running("web", "u1")
	c.put(pod)
	c.change(func() {
		c.refuse = func(*v1.Pod, podPatch) int { return http.StatusForbidden }
	})
	address := freeAddress(t)
	start(t, c, a, func(o *Options) { o.MetricsAddress = address })
	a.setRecord(evicted(pod, 1, api.OutcomeBack))
	want := []string{
		"jettison_bridge_evictions_pending 1\n", `jettison_bridge_requests_total{verb="patch",resource="pods/status",result="denied"} `,
		`jettison_bridge_build_info{version="test"} 1`,
	}
	last := ""
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		last = get(t, "http://"+address+"/metrics", http.StatusOK)
		missing := ""
		for _, text := range want {
			if !strings.Contains(last, text) {
				missing = text
			}
		}
		if missing == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("metrics lack %q after a minute:\n%s", missing, last)
		}
	}
	get(t, "http://"+address+"/", http.StatusNotFound)
}

// get returns the body of a response with this status. Until the server listens, it returns nothing.
func get(t *testing.T, url string, status int) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Fatalf("GET %s = %s, %v, want status %d", url, res.Status, err, status)
	}
	return string(text)
}
