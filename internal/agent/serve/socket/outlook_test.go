package socket

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
)

// A client reads the outlook. An error is 503 with its text, and a malformed answer is an error.
func TestOutlookIsServed(t *testing.T) {
	dir, err := os.MkdirTemp("", "o") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var outlook *api.Outlook
	why := errors.New("the pods could not be read")
	path := filepath.Join(dir, "s.sock")
	s, err := Listen(Options{Path: path, Pods: podstore.New(), Outlook: func(context.Context) (*api.Outlook, error) {
		if outlook == nil {
			return nil, why
		}
		return outlook, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	client := api.New(api.Options{Socket: path})
	var status *api.StatusError
	if _, err := client.Outlook(t.Context()); !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable || !strings.Contains(err.Error(), why.Error()) {
		t.Errorf("error without an outlook = %v, want 503 with the reason", err)
	}
	outlook = &api.Outlook{} // without thresholds
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
