package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The flood of a status port: floodEach connections of each kind from each address. A connection
// that the server closes is made again after floodPause.
const (
	floodPeriod = 30 * time.Second
	floodEach   = 16
	floodPause  = time.Second
)

// floodFiles limits the open files of a replica, so that a few hundred connections suffice to
// exhaust it, as many thousands would exhaust its memory. The server's own limits are lower: 32
// connections, and 128 that have ended and whose client may still read.
const floodFiles = 256

// The kubelet's defaults for the liveness probe of deploy/cluster/deployment.yaml. Its period is
// 20 s.
const (
	probeTimeout   = time.Second
	probePeriod    = 250 * time.Millisecond
	probesToFailed = 3
)

// flood is a kind of connections that cost a server. Each function returns when the server has
// closed the connection, or refuses a request.
var flood = map[string]func(context.Context, net.Conn){
	"sends nothing": func(_ context.Context, c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	"sends half a header": func(_ context.Context, c net.Conn) {
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: a\r\nX: ")
		_, _ = io.Copy(io.Discard, c)
	},
	"sends a body slowly": func(ctx context.Context, c net.Conn) {
		_, err := io.WriteString(c, "POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
		for ; err == nil; _, err = io.WriteString(c, "a") {
			pause(ctx, floodPause)
		}
	},
	"reads no response": func(ctx context.Context, c net.Conn) {
		for err := error(nil); err == nil; _, err = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") {
			pause(ctx, 10*time.Millisecond)
		}
	},
	"requests all the time": func(ctx context.Context, c net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
		for err := error(nil); err == nil; _, err = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") {
			pause(ctx, 50*time.Millisecond)
		}
	},
}

// pause waits, or returns when the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Pods and processes of the node flood the status ports of both replicas with connections. The
// kubelet's liveness probes are answered, no replica ends, and the leader still leads and taints a
// node that falls silent meanwhile.
func TestFloodedStatusPort(t *testing.T) {
	pods := newPodNetwork(t)
	c := Start(t, Options{})
	program := installNodes(t, c)
	m := c.addMembers("a", "b", "c")
	one := c.replicaOn("", program, "one", nodeAccount, nodesArgs(t)...)
	two := c.replicaOn("", program, "two", nodeAccount, nodesArgs(t)...)
	leader := c.awaitLeader(one, two)
	ctx, cancel := context.WithTimeout(t.Context(), floodPeriod)
	defer cancel()
	var all sync.WaitGroup
	var probes []*probes
	for _, r := range []*replica{one, two} {
		limit := unix.Rlimit{Cur: floodFiles, Max: floodFiles}
		if err := unix.Prlimit(c.pid(r.name), unix.RLIMIT_NOFILE, &limit, nil); err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(r.address)
		if err != nil {
			t.Fatal(err)
		}
		for _, dial := range pods.dialers(port) {
			for _, hold := range flood {
				for range floodEach {
					all.Go(func() { keepFlooding(ctx, dial, hold) })
				}
			}
		}
		p := newProbes(r, "http://"+net.JoinHostPort(podNetworkNode, port)+"/healthz")
		probes = append(probes, p)
		all.Go(func() { p.run(ctx) })
	}
	m.silence("a")
	c.awaitTaints("a", unreachable...)
	all.Wait()
	for _, p := range probes {
		t.Logf("%s: of %d probes %d failed, at most %d in a row; the slowest took %v; %d files, %.0f MiB at most; last error: %v",
			p.of.name, p.sent, p.failed, p.mostInRow, p.slowest.Round(time.Millisecond), p.files, mebibytes(c.pid(p.of.name), "VmHWM"), p.last)
		if p.sent == 0 || p.mostInRow >= probesToFailed {
			t.Errorf("%s: %d probes in a row failed, the kubelet would restart it", p.of.name, p.mostInRow)
		}
		select {
		case <-c.processes[c.find(p.of.name)].ended:
			t.Errorf("process of %s ended, want it to survive the flood", p.of.name)
		default:
		}
	}
	if now := c.awaitLeader(one, two); now != leader {
		t.Errorf("leader after the flood = %s, want %s", now.name, leader.name)
	}
}

// dialer connects to one port from one address.
type dialer func(context.Context) (net.Conn, error)

// keepFlooding keeps a connection open until the context ends.
func keepFlooding(ctx context.Context, dial dialer, hold func(context.Context, net.Conn)) {
	for ctx.Err() == nil {
		if conn, err := dial(ctx); err == nil {
			end := context.AfterFunc(ctx, func() { _ = conn.Close() })
			hold(ctx, conn)
			end()
			_ = conn.Close()
		}
		pause(ctx, floodPause)
	}
}

// probes are the liveness probes of a replica.
type probes struct {
	of                             *replica
	url                            string
	client                         *http.Client
	sent, failed, inRow, mostInRow int
	files                          int // open files of the replica, at most
	slowest                        time.Duration
	last                           error // of a probe that failed
}

// newProbes returns probes that connect as the kubelet's do: from an address of the node, with a
// connection each.
func newProbes(of *replica, url string) *probes {
	client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	return &probes{of: of, url: url, client: client}
}

func (p *probes) run(ctx context.Context) {
	pid := p.of.c.pid(p.of.name)
	for ; ctx.Err() == nil; pause(ctx, probePeriod) {
		began := time.Now()
		err := p.probe()
		p.sent++
		p.slowest = max(p.slowest, time.Since(began))
		if err != nil {
			p.failed++
			p.inRow++
			p.last = err
		} else {
			p.inRow = 0
		}
		p.mostInRow = max(p.mostInRow, p.inRow)
		if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			p.files = max(p.files, len(files))
		}
	}
}

func (p *probes) probe() error {
	response, err := p.client.Get(p.url)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !slices.Equal(body, []byte("ok\n"))) {
		err = errors.New(response.Status + ": " + strings.TrimSpace(string(body)))
	}
	return err
}
