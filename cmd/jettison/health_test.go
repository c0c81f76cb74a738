package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A probe goes by /healthz or /readyz; of an agent that has none, by its state.
func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]int
		args    []string
		code    int
		says    string
	}{
		"alive":                  {map[string]int{"/healthz": 200}, nil, exitOK, "ok\n"},
		"it hangs":               {map[string]int{"/healthz": 503, "/v1/state": 200}, nil, exitFailed, "status 503: no"},
		"not ready":              {map[string]int{"/healthz": 200, "/readyz": 503}, []string{"--ready"}, exitFailed, "status 503: no"},
		"older, and well":        {map[string]int{"/healthz": 404, "/v1/state": 200}, nil, exitOK, "ok\n"},
		"older, and it hangs":    {map[string]int{"/readyz": 404, "/v1/state": 503}, []string{"--ready"}, exitFailed, "status 503: no"},
		"as long as nobody asks": {nil, []string{"--limit", "0s"}, exitUsage, "--limit 0s"},
	} {
		dir, err := os.MkdirTemp("", "h") // a socket's path is short
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "s.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch status := c.answers[r.URL.Path]; {
			case status != http.StatusOK:
				w.WriteHeader(status)
				fmt.Fprintln(w, `{"error": "no"}`)
			default:
				fmt.Fprintln(w, `{"pods": {"clients": 0}}`)
			}
		})}
		go func() { _ = server.Serve(l) }()
		var out, errs bytes.Buffer
		code := execute(t.Context(), append([]string{"health", "--socket", path}, c.args...), &out, &errs)
		if all := out.String() + errs.String(); code != c.code || !strings.Contains(all, c.says) {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, c.code, all)
		}
		_ = server.Close()
		_ = os.RemoveAll(dir)
	}
}
