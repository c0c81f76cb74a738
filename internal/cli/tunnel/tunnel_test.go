package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"jettison/api"
)

const state = `{"version":"v9","pods":{"runtime":3,"objects":2,"clients":1}}`

// fakeAgent serves a socket.
type fakeAgent struct {
	t      *testing.T
	socket string
	server *http.Server
	done   chan struct{}
}

func newAgent(t *testing.T) *fakeAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "t") // socket paths are limited to 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &fakeAgent{t: t, socket: filepath.Join(dir, "s")}
}

func (a *fakeAgent) start() {
	a.t.Helper()
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		a.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc(api.PathHealth, func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc(api.PathState, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderMinor, r.Header.Get(api.HeaderMinor))
		_, _ = io.WriteString(w, state)
	})
	mux.HandleFunc(api.PathEvents, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"seq":7,"kind":"agent"}`+"\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	a.server, a.done = &http.Server{Handler: mux}, make(chan struct{})
	go func() {
		defer close(a.done)
		_ = a.server.Serve(l)
	}()
}

func (a *fakeAgent) stop() {
	_ = a.server.Close()
	<-a.done
}

// open returns a tunnel to node w1 that is closed when the test ends, and a client of its agent.
func open(t *testing.T) (*Tunnel, *api.Client) {
	t.Helper()
	tunnel := New(Target{Node: "w1", Namespace: "kube-system", Kubeconfig: "/k", Context: "prod"})
	tunnel.delay = 10 * time.Millisecond
	t.Cleanup(tunnel.Close)
	return tunnel, api.New(api.Options{Socket: "node w1", Transport: tunnel})
}

// eventually repeats a check until it succeeds.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: last error after a minute: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// All requests share one kubectl exec, also while events are followed. Close ends it.
func TestOneExecCarriesAllRequests(t *testing.T) {
	a := newAgent(t)
	a.start()
	defer a.stop()
	k := newKubectl(t, script{Pods: runningPod, Exec: "serve", Socket: a.socket})
	tunnel, client := open(t)
	if err := tunnel.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	seen := make(chan uint64, 1)
	followers.Go(func() {
		_ = client.Events(ctx, api.EventOptions{Follow: true}, func(e api.Event) error {
			seen <- e.Seq
			return nil
		})
	})
	if seq := <-seen; seq != 7 {
		t.Errorf("followed event has number %d, want 7", seq)
	}
	for range 20 {
		if s, err := client.State(t.Context()); err != nil || s.Version != "v9" || client.AgentMinor() != api.Minor {
			t.Fatalf("state through the tunnel = %+v, minor %d, error %v; want version v9, minor %d", s, client.AgentMinor(), err, api.Minor)
		}
	}
	cancel()
	followers.Wait()
	tunnel.Close()
	_, lines := k.calls()
	want := []string{
		"--namespace=kube-system --kubeconfig=/k --context=prod get --request-timeout=10s pods --selector=app.kubernetes.io/name=jettison " +
			"--field-selector=spec.nodeName=w1 --output=json",
		"--namespace=kube-system --kubeconfig=/k --context=prod exec --stdin jettison-x1 --container=agent -- /jettison tunnel",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("command lines of kubectl =\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	k.allEnded()
}

// Each error is one line with the cause and the remedy. No kubectl remains.
func TestErrors(t *testing.T) {
	const forbidden = `error: unable to upgrade connection: pods "jettison-x1" is forbidden: User "jane" cannot create resource "pods/exec"`
	for _, c := range []struct {
		name   string
		script script
		want   []string
	}{
		{"no such node", script{Pods: noPods, NodeError: `Error from server (NotFound): nodes "w1" not found`},
			[]string{"node w1 does not exist", "kubectl get nodes"}},
		{"no pod", script{Pods: noPods}, []string{"node w1 has no pod of the agent in namespace kube-system", "--namespace", "ssh -t -L"}},
		{"no right to read the node", script{Pods: noPods, NodeError: "Error from server (Forbidden): nodes"},
			[]string{"node w1 has no pod of the agent"}},
		{"pending pod", script{Pods: `{"items":[{"metadata":{"name":"jettison-x1"},"status":{"phase":"Pending"}}]}`},
			[]string{"pod kube-system/jettison-x1 of node w1 (Pending)", "kubectl -n kube-system describe pod jettison-x1"}},
		{"crashing pod", script{Pods: podList("jettison-x1", "Running", `"waiting":{"reason":"CrashLoopBackOff"}`)},
			[]string{"pod kube-system/jettison-x1", "(CrashLoopBackOff)"}},
		{"list forbidden", script{PodsError: `Error from server (Forbidden): pods is forbidden: User "jane" cannot list resource "pods"`},
			[]string{"kubectl get pods: Error from server (Forbidden)", "namespace kube-system, the user needs get and list on pods, and get and create on pods/exec"}},
		{"exec forbidden", script{Pods: runningPod, ExecError: forbidden},
			[]string{"kubectl exec: " + forbidden, "get and create on pods/exec"}},
		{"older agent", script{Pods: runningPod, ExecError: "jettison: unknown command \"tunnel\": see jettison --help\ncommand terminated with exit code 2\n"},
			[]string{"the agent is older than this jettison: upgrade it", "ssh -t -L"}},
		{"no API server", script{PodsError: "Unable to connect to the server: dial tcp 10.0.0.1:6443: connect: connection refused\n"},
			[]string{"kubectl get pods: Unable to connect to the server: dial tcp 10.0.0.1:6443: connect: connection refused"}},
		{"no list", script{Pods: "no resources"}, []string{"kubectl get pods: decode the list of pods"}},
		{"exec ends without a reason", script{Pods: runningPod}, []string{"kubectl exec: connection lost"}},
		{"exec answers garbage", script{Pods: runningPod, Exec: "garbage"}, []string{"kubectl exec: connection lost: http2: "}},
		{"exec warns and answers garbage", script{Pods: runningPod, Exec: "garbage", Warning: "Warning: use of the plugin is deprecated\n"},
			[]string{"kubectl exec: connection lost: http2: ", ": Warning: use of the plugin is deprecated"}},
		{"pod name is a flag", script{Pods: podList("--server=https://example.com", "Running", `"running":{}`)},
			[]string{`kubectl get pods: pod name "--server=https://example.com": `}},
		{"endless list", script{Pods: "endless"}, []string{"kubectl get pods: output larger than"}},
		{"endless output", script{Pods: runningPod, Exec: "endless"}, []string{"kubectl exec: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKubectl(t, c.script)
			tunnel, _ := open(t)
			err := tunnel.Open(t.Context())
			if err == nil {
				t.Fatalf("error = nil, want %q", c.want)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %q, want %q", err, want)
				}
			}
			if text := err.Error(); strings.Contains(text, "\n") || len(text) > maxReason+500 {
				t.Errorf("error has %d bytes, want one line of at most %d: %.200q", len(text), maxReason+500, text)
			}
			tunnel.Close()
			k.allEnded()
		})
	}
}

// An API server that does not answer is reported with the text of kubectl, not as a pod that does not.
func TestSilentServer(t *testing.T) {
	k := newKubectl(t, script{Pods: "silent", PodsError: "memcache.go:265: dial tcp 10.0.0.1:6443: i/o timeout\n"})
	tunnel, _ := open(t)
	tunnel.target.timeout = time.Second
	err := tunnel.Open(t.Context())
	const want = "kubectl get pods: memcache.go:265: dial tcp 10.0.0.1:6443: i/o timeout"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error of a server that does not answer = %v, want %q", err, want)
	}
	tunnel.Close()
	k.allEnded()
}

// Without kubectl the error is how to get it, and another way to the page.
func TestNoKubectl(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	tunnel, _ := open(t)
	err := tunnel.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "kubectl is not in $PATH: install it, or run ssh -t -L 5388:127.0.0.1:5388 w1 jettison ui") {
		t.Errorf("error without kubectl = %v, want the remedy", err)
	}
}

// The tunnel opens while the agent is down. Requests fail until the agent is up, without a new exec.
func TestAgentDown(t *testing.T) {
	a := newAgent(t)
	k := newKubectl(t, script{Pods: runningPod, Exec: "serve", Socket: a.socket})
	tunnel, client := open(t)
	if err := tunnel.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := client.State(t.Context())
	var status *api.StatusError
	if !errors.As(err, &status) || status.Status != http.StatusBadGateway || !strings.Contains(err.Error(), "agent at node w1: GET /v1/state") ||
		!strings.Contains(err.Error(), "agent unreachable: dial unix "+a.socket) {
		t.Errorf("error while the agent is down = %v, want status 502 with the socket", err)
	}
	a.start()
	defer a.stop()
	if _, err := client.State(t.Context()); err != nil {
		t.Errorf("error after the agent's start = %v, want none", err)
	}
	if n, _ := k.execs(); n != 1 {
		t.Errorf("started kubectl exec %d times, want once", n)
	}
}

// A lost connection is replaced, after failures too, and to a new pod.
func TestReconnect(t *testing.T) {
	a := newAgent(t)
	a.start()
	defer a.stop()
	good := script{Pods: runningPod, Exec: "serve", Socket: a.socket}
	k := newKubectl(t, good)
	tunnel, client := open(t)
	if err := tunnel.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.set(script{PodsError: "Unable to connect to the server"})
	_, pid := k.execs()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "request without the API server", func() error {
		if _, err := client.State(t.Context()); err == nil || !strings.Contains(err.Error(), "Unable to connect to the server") {
			return fmt.Errorf("error = %w, want that of kubectl", err)
		}
		return nil
	})
	good.Pods = podList("jettison-x2", "Running", `"running":{}`)
	k.set(good)
	eventually(t, "request after the API server's return", func() error {
		_, err := client.State(t.Context())
		return err
	})
	if _, lines := k.calls(); !strings.Contains(lines[len(lines)-1], "exec --stdin jettison-x2 ") {
		t.Errorf("last command line of kubectl = %q, want an exec in the new pod", lines[len(lines)-1])
	}
	tunnel.Close()
	k.allEnded()
}

// While kubectl hangs, requests end by their own timeouts and start no further kubectl.
func TestHungKubectl(t *testing.T) {
	k := newKubectl(t, script{Pods: runningPod, Exec: "silent"})
	tunnel, _ := open(t)
	client := api.New(api.Options{Socket: "node w1", Transport: tunnel, Limit: time.Second})
	eventually(t, "start of kubectl exec", func() error {
		if _, err := client.State(t.Context()); err == nil {
			return errors.New("state from a pod that does not answer")
		}
		if n, _ := k.execs(); n == 0 {
			return errors.New("kubectl exec has not started")
		}
		return nil
	})
	var requests sync.WaitGroup
	for range 20 {
		requests.Go(func() {
			if _, err := client.State(t.Context()); err == nil {
				t.Error("state from a pod that does not answer, want an error")
			}
		})
	}
	requests.Wait()
	pids, lines := k.calls()
	running := 0
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			running++
		}
	}
	if running > 1 || len(lines) > 10 {
		t.Errorf("%d kubectl run, of %q; want at most one, and not one for each request", running, lines)
	}
	tunnel.Close()
	k.allEnded()
}

// jettison tunnel ends when its input ends, when its output fails, and when it is interrupted.
func TestServeEnds(t *testing.T) {
	for name, end := range map[string]func(stdin *os.File, cancel func()){
		"end of the input": func(stdin *os.File, _ func()) { _ = stdin.Close() },
		"interrupt":        func(_ *os.File, cancel func()) { cancel() },
		"no HTTP/2": func(stdin *os.File, _ func()) {
			_, _ = io.WriteString(stdin, "GET / HTTP/1.1\r\nHost: jettison\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, stdin, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stdin.Close() }()
			stdout, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stdout.Close() }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				Serve(ctx, in, out, "/nonexistent")
			}()
			end(stdin, cancel)
			<-ended
		})
	}
}

// jettison tunnel ends when the other end is silent: the kubelet keeps the stream of a lost operator for hours.
func TestServeEndsOnSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stdin := io.Pipe()
		stdout, out := io.Pipe()
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, stdout)
		}()
		began, ended := time.Now(), make(chan struct{})
		go func() {
			defer close(ended)
			Serve(t.Context(), in, out, "/nonexistent")
		}()
		const preface, settings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		if _, err := io.WriteString(stdin, preface+settings); err != nil {
			t.Fatal(err)
		}
		<-ended
		<-read
		if took := time.Since(began); took < maxSilence || took > 3*maxSilence {
			t.Errorf("end after %v of silence, want about %v", took, 2*maxSilence)
		}
	})
}

// The flags of the cluster need --node, and those of this machine exclude it.
func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args   string
		remote bool
		want   string
	}{
		{"", false, ""},
		{"--node w1 --namespace jettison --kubeconfig tunnel_test.go --context c", true, ""},
		{"--node w1 --kubeconfig /dev/zero", false, "--kubeconfig /dev/zero: not a regular file"},
		{"--node w1 --kubeconfig missing", false, "--kubeconfig: stat missing: no such file or directory"},
		{"--node w1.example.com", true, ""},
		{"--node=", false, `--node ""`},
		{"--node w1,metadata.name=x", false, `--node "w1,metadata.name=x"`},
		{"--node w1 --namespace=", false, `--namespace ""`},
		{"--namespace x", false, "--namespace: use it with --node"},
		{"--kubeconfig x", false, "--kubeconfig: use it with --node"},
		{"--context x", false, "--context: use it with --node"},
		{"--node w1 --socket s", false, "--socket is a file of this machine"},
		{"--node w1 --config s", false, "--config is a file of this machine"},
	} {
		var target Target
		cmd := &cobra.Command{}
		target.Add(cmd.Flags())
		cmd.Flags().String("socket", "", "")
		cmd.Flags().String("config", "", "")
		if err := cmd.ParseFlags(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		remote, err := target.Check(cmd)
		if remote != c.remote || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("flags %q: remote = %v, error = %v; want %v, %q", c.args, remote, err, c.remote, c.want)
		}
	}
}
