package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/serve/socket"
)

// Any address other than loopback is bad usage; the error describes port forwarding.
func TestUIListensOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:5388", "[::]:5388", ":5388", "10.0.0.1:5388"} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), []string{"ui", "--socket", "/nonexistent", "--listen", address}, &out, &errs)
		if code != exitUsage || out.Len() > 0 || !strings.Contains(errs.String(), "ssh -L 5388:127.0.0.1:5388") || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("--listen %s: exit code %d, want 2 with the ssh command: %s%s", address, code, &out, &errs)
		}
	}
}

// The help of ui has an example with ssh, and shell completion knows the command.
func TestUIHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute(t.Context(), []string{"ui", "--help"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "ssh -t -L 5388") {
		t.Errorf("exit code %d, want 0 with the expected text: %s%s", code, &out, &errs)
	}
	out.Reset()
	if code := execute(t.Context(), []string{"__complete", "u"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "ui\tServe a page") {
		t.Errorf("exit code %d, want 0 with the expected text: %s%s", code, &out, &errs)
	}
}

// fakeKubectl is kubectl for node w1, whose agent has the socket $FAKE_AGENT. While the file $FAKE_FAULT exists, it fails with its text.
func fakeKubectl() {
	fault, err := os.ReadFile(os.Getenv("FAKE_FAULT"))
	switch {
	case err == nil:
		fmt.Fprint(os.Stderr, string(fault))
		os.Exit(1)
	case slices.Contains(os.Args, "exec"):
		command := os.Args[slices.Index(os.Args, "--")+1:]
		if command[0] != "/jettison" {
			fmt.Fprintln(os.Stderr, "no such program:", command[0])
			os.Exit(1)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { // a fault breaks a running connection
			for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
				if fault, err := os.ReadFile(os.Getenv("FAKE_FAULT")); err == nil {
					fmt.Fprint(os.Stderr, string(fault))
					os.Exit(1)
				}
			}
		}()
		os.Exit(execute(ctx, append(command[1:], "--socket="+os.Getenv("FAKE_AGENT")), os.Stdout, os.Stderr))
	case slices.Contains(os.Args, "pods"):
		fmt.Println(`{"items":[{"metadata":{"name":"jettison-x1"},"status":{"containerStatuses":[{"name":"agent","state":{"running":{}}}]}}]}`)
	}
}

// The page of another node's agent arrives through kubectl. It reports a broken connection and recovers from it.
func TestUIOfAnotherNode(t *testing.T) {
	dir, err := os.MkdirTemp("", "u") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, fault := filepath.Join(dir, "s"), filepath.Join(dir, "fault")
	t.Setenv("FAKE_AGENT", path)
	t.Setenv("FAKE_FAULT", fault)
	server, err := socket.Listen(socket.Options{Path: path, Pods: podstore.New(), State: func() any {
		return &api.State{Time: time.Now(), Version: "v9"}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	stdout, in := io.Pipe()
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, []string{"ui", "--node", "w1", "--listen", "127.0.0.1:0"}, in, &errs)
		_ = in.Close()
	}()
	defer func() {
		cancel()
		if code := <-ended; code != exitOK || !strings.Contains(errs.String(), "connected to node w1") {
			t.Errorf("exit code %d, want 0 and the node: %s", code, &errs)
		}
	}()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(strings.TrimSpace(address), "/?", "/stream?", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	until := func(parts ...string) {
		t.Helper()
		for lines.Scan() {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(lines.Text(), part) }) {
				return
			}
		}
		t.Fatalf("stream of the page ended before %q: %v", parts, lines.Err())
	}
	until(`"node":"w1"`, `"agent":"v9"`, `"socket":"node w1"`, `"answers":true`)
	if err := os.WriteFile(fault, []byte("error: the server is \x1b[2J on fire\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(`"answers":false`, "agent at node w1: GET /v1/state: no answer: kubectl", `\u001b[2J on fire`)
	if err := os.Remove(fault); err != nil {
		t.Fatal(err)
	}
	until(`"answers":true`)
}

// If kubectl fails at the start, ui ends with one line.
func TestUIOfAnotherNodeFails(t *testing.T) {
	fault := filepath.Join(t.TempDir(), "fault")
	t.Setenv("FAKE_FAULT", fault)
	if err := os.WriteFile(fault, []byte("error: context \"prod\" does \x1b[2J not exist\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := execute(t.Context(), []string{"ui", "--node", "w1", "--listen", "127.0.0.1:0"}, &out, &errs)
	const want = `jettison: ui: node w1: kubectl get pods: error: context "prod" does \u001b[2J not exist` + "\n"
	if code != exitFailed || out.Len() > 0 || errs.String() != want {
		t.Errorf("exit code %d, want 1 with %q: %s%q", code, want, &out, &errs)
	}
}

// Interrupted while it connects, ui prints no address.
func TestUIOfAnotherNodeIsInterrupted(t *testing.T) {
	t.Setenv("FAKE_FAULT", filepath.Join(t.TempDir(), "fault"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := execute(ctx, []string{"ui", "--node", "w1", "--listen", "127.0.0.1:0"}, &out, &errs); code != exitOK || out.Len() > 0 || errs.Len() > 0 {
		t.Errorf("exit code %d with output %q and errors %q, want 0 and none", code, &out, &errs)
	}
}
