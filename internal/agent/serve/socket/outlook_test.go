package socket

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
)

// A client reads the outlook that the loop publishes. No outlook is 503, and another value is an
// error.
func TestOutlookIsServed(t *testing.T) {
	dir, err := os.MkdirTemp("", "o") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var outlook any
	path := filepath.Join(dir, "s.sock")
	s, err := Listen(Options{Path: path, Pods: podstore.New(), Outlook: func() any { return outlook }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	client := api.New(api.Options{Socket: path})
	var status *api.StatusError
	if _, err := client.Outlook(t.Context()); !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable {
		t.Errorf("error without an outlook = %v, want 503", err)
	}
	outlook = struct{}{}
	if _, err := client.Outlook(t.Context()); !errors.Is(err, api.ErrMalformed) {
		t.Errorf("error for a malformed outlook = %v, want ErrMalformed", err)
	}
	outlook = &api.Outlook{Thresholds: []api.ThresholdOutlook{{
		Threshold: "memory.available<100Mi", Ranking: []api.RankedPod{{Candidate: api.Candidate{Pod: "shop/web"}}},
	}}}
	got, err := client.Outlook(t.Context())
	if err != nil || len(got.Thresholds) != 1 || got.Thresholds[0].Ranking[0].Pod != "shop/web" {
		t.Errorf("outlook = %+v, %v, want one threshold with shop/web", got, err)
	}
}
