package agent

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/internal/agent/serve/eventlog"
	"jettison/internal/node/config"
	"jettison/internal/node/nodetest"
)

// hooked is a log handler that calls a function for each line.
type hooked struct {
	slog.Handler
	do func(message string)
}

func (h hooked) Handle(ctx context.Context, r slog.Record) error {
	h.do(r.Message)
	return h.Handler.Handle(ctx, r)
}

// The agent starts first, as on a node that boots. Its runtime starts later, at another socket than
// the detected one.
func TestRuntimeStartsAfterTheAgent(t *testing.T) {
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", "")
	dir, err := os.MkdirTemp("", "r") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	one, two := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: one}) // the socket that another runtime left
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	n := nodetest.New(t)
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: \"\"\nstateDir: \"\"\nruntimeWait: 0s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Find(t.Context(), config.Places{
		Path: file, ProcMount: n.Proc(), Sockets: []config.Socket{{Runtime: "one", Path: one}, {Runtime: "two", Path: two}},
	})
	if err == nil {
		err = n.Redial(c)
	}
	if err != nil || n.Client.Endpoint() != "unix://"+one {
		t.Fatalf("first endpoint = %s, %v, want %s", n.Client.Endpoint(), err, one)
	}
	runtime := strings.TrimPrefix(n.Runtime.Endpoint(), "unix://")
	log := slog.New(hooked{n.Log.Handler(), func(message string) {
		if strings.HasPrefix(message, "waiting for container runtime") {
			if err := os.Symlink(runtime, two); err != nil {
				t.Error(err)
			}
		}
	}})
	b := newBuilder(Options{Config: c, ProcMount: n.Proc(), HostRoot: t.TempDir(), CgroupMount: filepath.Join(n.Dir, "none"), Log: log},
		n.Sources, eventlog.NewRing(time.Now()))
	defer b.close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.listen(ctx); err != nil || ctx.Err() != nil {
		t.Fatalf("listen failed before the runtime answered: error %v, context %v", err, ctx.Err())
	}
	if at := "unix://" + two; n.Client.Endpoint() != at || b.publisher.endpoint != at || b.runtime == "" {
		t.Errorf("endpoint in use %s, published %s, want %s", n.Client.Endpoint(), b.publisher.endpoint, at)
	}
	if _, err := b.lister.Client().List(ctx); err != nil {
		t.Errorf("list of the runtime's pods: %v", err)
	}
	if text := n.Text(); strings.Count(text, `msg="using container runtime"`) != 2 || strings.Count(text, "socket of two accepts connections now") != 1 {
		t.Errorf("the choice of the runtime is not logged:\n%s", text)
	}
}
