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

// A client reads what the loop says of who would go; one that says nothing is 503, and what is no outlook is an error.
func TestTheOutlookIsServed(t *testing.T) {
	dir, err := os.MkdirTemp("", "o") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var says any
	path := filepath.Join(dir, "s.sock")
	s, err := Listen(Options{Path: path, Pods: podstore.New(), Outlook: func() any { return says }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	client := api.New(api.Options{Socket: path})
	var status *api.StatusError
	if _, err := client.Outlook(t.Context()); !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable {
		t.Errorf("a loop that says nothing: %v", err)
	}
	says = struct{}{}
	if _, err := client.Outlook(t.Context()); !errors.Is(err, api.ErrMalformed) {
		t.Errorf("no outlook: %v", err)
	}
	says = &api.Outlook{Thresholds: []api.ThresholdOutlook{{
		Threshold: "memory.available<100Mi", Ranking: []api.RankedPod{{Candidate: api.Candidate{Pod: "shop/web"}}},
	}}}
	got, err := client.Outlook(t.Context())
	if err != nil || len(got.Thresholds) != 1 || got.Thresholds[0].Ranking[0].Pod != "shop/web" {
		t.Errorf("%+v, %v", got, err)
	}
}
