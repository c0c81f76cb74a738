package kubeclient

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// An unreachable API server is logged once, with its address and the cause, also if it accepts connections and is silent.
func TestReachLogsAddressAndCause(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	tls.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	defer tls.Close()
	for name, c := range map[string]struct {
		host, cause string
		limit       time.Duration
	}{
		"nothing listens":     {"https://" + closed.Addr().String(), "connection refused", time.Hour},
		"silent":              {"https://" + silent.Addr().String(), "no answer within 10ms", 10 * time.Millisecond},
		"unknown certificate": {tls.URL, "certificate signed by unknown authority", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			var log lines
			config := &rest.Config{Host: c.host, QPS: -1}
			reach := NewReach(config, slog.New(slog.NewTextHandler(&log, nil)))
			reach.limit = c.limit
			client, err := New(config, "test", c.limit+time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
					t.Fatal("List() succeeded, want an error of an unreachable server")
				}
			}
			text := log.String()
			if strings.Count(text, "\n") != 1 || !strings.Contains(text, "API server unreachable, retrying") ||
				!strings.Contains(text, "api="+c.host) || !strings.Contains(text, c.cause) {
				t.Errorf("log = %q, want one line with %q and %q", text, c.host, c.cause)
			}
			if err := reach.Err(); err == nil || !strings.Contains(err.Error(), c.host) {
				t.Errorf("Err() = %v, want an error with %q", err, c.host)
			}
			reach.Quiet(reach.log).Error("retry failed")
			if log.String() != text {
				t.Errorf("log = %q, want no line about a retry", log.String())
			}
		})
	}
}

// Any answer counts, and a request that the program itself ends is not a failure.
func TestReachAfterAnswer(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	defer close(release)
	var log lines
	config := &rest.Config{Host: server.URL}
	reach := NewReach(config, slog.New(slog.NewTextHandler(&log, nil)))
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context, path string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := transport.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
	get(t.Context(), "/")
	reach.fail(time.Now().Add(-time.Hour), io.EOF) // sent before the answer
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	get(ctx, "/slow")
	if err := reach.Err(); err != nil || log.String() != "" {
		t.Errorf("Err() = %v, log %q, want none after an answer and a canceled request", err, log.String())
	}
	reach.fail(time.Now(), io.EOF)
	get(t.Context(), "/")
	if err := reach.Err(); err != nil || !strings.Contains(log.String(), `msg="API server reachable"`) {
		t.Errorf("Err() = %v, log %q, want the recovery logged", err, log.String())
	}
}

// A webhook delays a write, while the program sends nothing else. The API server is reachable.
func TestReachWhileWebhookDelaysWrite(t *testing.T) {
	var log lines
	reach := NewReach(&rest.Config{}, slog.New(slog.NewTextHandler(&log, nil)))
	reach.limit = time.Millisecond
	transport := &reachTransport{reach, roundTripper(func(r *http.Request) (*http.Response, error) {
		time.Sleep(50 * time.Millisecond)
		return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody, Request: r}, nil
	})}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api/eviction", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if text := log.String(); text != "" {
		t.Errorf("log = %q, want none for an answered write", text)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
