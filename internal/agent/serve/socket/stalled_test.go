package socket

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"jettison/internal/agent/objects/podstore"
)

// A body that stalls is ended long before the request limit.
func TestStalledBodyIsEnded(t *testing.T) {
	l := patient
	l.progress = 100 * time.Millisecond
	path, pods := start(t, Options{}, l)
	c := dial(t, path)
	send(t, c, slowBody)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(res.Body); res.StatusCode != 408 || err != nil {
		t.Errorf("answer to a stalled body = %d %s %v, want 408", res.StatusCode, text, err)
	}
	if got := pods.Snapshot(); len(got.Pods) != 0 {
		t.Errorf("known pods = %v, want none", got.Pods)
	}
}

// A member deletes pods that members have put; root deletes all.
func TestRolesThatDelete(t *testing.T) {
	h := &handler{pods: podstore.New(), limit: time.Second, body: 1 << 20}
	do := func(r role, method, target, body string) string {
		w := httptest.NewRecorder()
		ctx := context.WithValue(t.Context(), connKey{}, &conn{role: r})
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body)))
		return strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Body))
	}
	if _, _, err := h.pods.Put(strings.NewReader("["+pod("roots")+"]"), false, podstore.ByRoot); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.pods.Put(strings.NewReader("["+pod("members")+"]"), false, podstore.ByMember); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r    role
		uid  string
		want string
	}{
		{member, "roots", `403 {"error":"forbidden: the pod with the uid \"roots\": root provided it: only root may delete it"}`},
		{member, "members", "204"}, {member, "members", `404 {"error":"no client provided a pod with the uid \"members\""}`},
		{owner, "roots", "204"},
	} {
		if got := do(c.r, "DELETE", "/v1/pods/"+c.uid, ""); got != c.want {
			t.Errorf("role %v deletes %s: answer %s, want %s", c.r, c.uid, got, c.want)
		}
	}
}

// Twenty scrapers of root are all answered in the same second, while a member opens a thousand
// connections.
func TestScrapersWithThousandConnections(t *testing.T) {
	path, _ := start(t, Options{Group: group, State: func() any { return 1 }}, patient)
	if os.Geteuid() == 0 {
		as(t, 4001, 54321, nil, func() {
			for range 1000 {
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { c.Close() })
			}
		})
	}
	var scrapers sync.WaitGroup
	begin := make(chan struct{})
	for range 20 {
		c := dial(t, path)
		scrapers.Go(func() {
			<-begin
			_, _ = io.WriteString(c, "GET /v1/state HTTP/1.1\r\nHost: j\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || res.StatusCode != 200 {
				t.Errorf("answer to a scraper = %+v, %v, want 200", res, err)
			}
		})
	}
	close(begin)
	scrapers.Wait()
}
