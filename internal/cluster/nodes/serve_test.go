package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"jettison/internal/cluster/mirror"
	"jettison/internal/cluster/report"
)

// serveStatus serves the status of a controller that has not synced, and returns its address.
func serveStatus(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &controller{metrics: newMetrics("test"), deps: dependencies{Mirror: mirror.New(mirror.Options{}), Log: slog.New(slog.DiscardHandler)}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return l.Addr().String()
}

// ask sends a request on a connection of its own, and returns the status code.
func ask(address, path, host string) (int, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return r.StatusCode, err
}

// A page in a browser on this host cannot read the status through a name of its own.
func TestStatusNeedsHost(t *testing.T) {
	address := serveStatus(t)
	for path, code := range map[string]int{"/healthz": 200, "/metrics": 200, report.StatusPath: 503, report.ExplainPath + "?object=n1": 503} {
		for host, want := range map[string]int{"localhost:10270": code, "127.0.0.1:10270": code, "10.1.2.3:10270": code, "evil.example:10270": 403} {
			if got, err := ask(address, path, host); got != want || err != nil {
				t.Errorf("GET %s with host %s = %d, %v, want %d", path, host, got, err, want)
			}
		}
	}
}

// Clients that hold their connections do not keep the kubelet's probes out.
func TestProbesAreAnsweredDuringFlood(t *testing.T) {
	address, open := serveStatus(t), []net.Conn{}
	for i := range 200 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		open = append(open, c)
		// The server may have closed the connection already.
		_, _ = io.WriteString(c, []string{"", "GET /metr", "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"}[i%3])
		if i%20 < 19 {
			continue
		}
		if code, err := ask(address, "/healthz", "localhost"); code != 200 {
			t.Errorf("probe after %d hostile connections = %d, %v, want 200", i+1, code, err)
		}
	}
	held := 0
	for _, c := range open {
		if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			held++
		}
	}
	if held > 32 {
		t.Errorf("%d of %d hostile connections are open, want at most 32", held, len(open))
	}
}
