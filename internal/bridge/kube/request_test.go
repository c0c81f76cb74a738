package kube

import (
	"errors"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// roundTrip is an http.RoundTripper of one function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Writes have the webhook timeout, an event only on request.
func TestTimeouts(t *testing.T) {
	var left time.Duration
	c, err := New(&rest.Config{Host: "http://127.0.0.1:1", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		at, _ := r.Context().Deadline()
		left = time.Until(at)
		return nil, errors.New("no server")
	})}, "test")
	if err != nil {
		t.Fatal(err)
	}
	event := &v1.Event{}
	event.Namespace, event.Name = "a", "b"
	lease := coordinationv1.Lease{ObjectMeta: event.ObjectMeta}
	for name, each := range map[string]struct {
		request func() error
		want    time.Duration
	}{
		"patch a status":           {func() error { _, err := c.PatchPodStatus(t.Context(), "a", "b", []byte("{}")); return err }, webhookTimeout},
		"patch a node":             {func() error { _, err := c.PatchNodeStatus(t.Context(), "a", []byte("{}")); return err }, webhookTimeout},
		"patch a lease":            {func() error { return c.PatchLease(t.Context(), "a", "b", []byte("{}")) }, webhookTimeout},
		"create a lease":           {func() error { return c.CreateLease(t.Context(), &lease) }, webhookTimeout},
		"get a pod":                {func() error { _, err := c.Pod(t.Context(), "a", "b"); return err }, requestTimeout},
		"create an event":          {func() error { return c.CreateEvent(t.Context(), event) }, requestTimeout},
		"create an event, patient": {func() error { return c.CreateEvent(WithWebhookTimeout(t.Context()), event) }, webhookTimeout},
	} {
		if err := each.request(); err == nil || left > each.want || left < each.want-5*time.Second {
			t.Errorf("%s: error %v, deadline in %v, want an error and %v", name, err, left, each.want)
		}
	}
}
