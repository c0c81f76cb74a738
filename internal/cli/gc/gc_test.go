package gc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/cri/critest"
	"jettison/internal/base/filetest"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/node/config"
	"jettison/reclaim"
)

const gcUID = "00000000-0000-0000-0000-00000000000a"

// gcNode is a fake node with a fake runtime. It has a pod that is gone, and 3 dead containers of a running pod.
type gcNode struct {
	t           *testing.T
	r           *critest.Runtime
	dir, config string
}

func newGCNode(t *testing.T, more string) *gcNode {
	n := &gcNode{t: t, r: critest.Start(t), dir: t.TempDir()}
	n.config = filepath.Join(n.dir, "config.yaml")
	n.write("config.yaml", fmt.Sprintf("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\ncontainerRuntimeEndpoint: %s\npodGoneAfter: 0s\ngc: act\nsocket: %s\n%s", n.r.Endpoint(), filepath.Join(n.dir, "socket"), more))
	n.write("root/var/log/pods/default_gone_"+gcUID+"/main/0.log", "x")
	at := func(minutes int) int64 { return time.Now().Add(-time.Duration(minutes) * time.Minute).UnixNano() }
	n.r.Sandboxes = []*runtimev1.PodSandbox{
		{Id: "s-live", Metadata: &runtimev1.PodSandboxMetadata{Uid: "live", Namespace: "default", Name: "live"}, CreatedAt: at(9)},
		{Id: "s-gone", Metadata: &runtimev1.PodSandboxMetadata{Uid: gcUID, Namespace: "default", Name: "gone"}, State: runtimev1.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: at(9)},
	}
	for i := range 3 {
		n.r.Containers = append(n.r.Containers, &runtimev1.Container{
			Id: fmt.Sprint("c", i), PodSandboxId: "s-live", Metadata: &runtimev1.ContainerMetadata{Name: "main"}, State: runtimev1.ContainerState_CONTAINER_EXITED, CreatedAt: at(8 - i),
		})
	}
	return n
}

func (n *gcNode) write(path, text string) {
	n.t.Helper()
	filetest.Write(n.t, filepath.Join(n.dir, path), text)
}

// gc runs a pass and returns the output, the error line and the exit code of the command. change sets options like flags.
func (n *gcNode) gc(change ...func(*options)) (stdout, stderr string, code int) {
	n.t.Helper()
	c, err := config.Load(n.t.Context(), n.config)
	if err != nil {
		n.t.Fatal(err)
	}
	client, err := cri.Dial(c.ContainerRuntimeEndpoint, "")
	if err != nil {
		n.t.Fatal(err)
	}
	defer client.Close()
	o := options{
		config: c.Config, runtime: client, cgroupMount: filepath.Join(n.dir, "none"), procMount: "/proc", hostRoot: filepath.Join(n.dir, "root"),
		stateDir: filepath.Join(n.dir, "state"), trigger: reclaim.Periodic,
	}
	for _, f := range change {
		f(&o)
	}
	var out bytes.Buffer
	if err := run(context.Background(), o, terminal.Fixed(&out, 0)); err != nil {
		return out.String(), "jettison: " + output.OneLine(err.Error()) + "\n", 1
	}
	return out.String(), "", 0
}

func dryRun(o *options) { o.dryRun = true }

func inJSON(o *options) { o.format = output.AsJSON }

func (n *gcNode) contains(text string, want ...string) {
	n.t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			n.t.Errorf("output of gc lacks %q:\n%s", w, text)
		}
	}
}

func asRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("jettison gc needs root to remove: covered by make e2e RUN=Garbage")
	}
}

// A dry run only plans; a pass removes, and a second pass finds nothing.
func TestGCOnNode(t *testing.T) {
	asRoot(t)
	n := newGCNode(t, "")
	stdout, stderr, code := n.gc(dryRun)
	if code != 0 || stderr != "" || len(n.r.Removed) > 0 {
		t.Fatalf("dry run ended with exit code %d, stderr %s, removed %v; want 0 and none", code, stderr, n.r.Removed)
	}
	n.contains(stdout, "STEP", "remove container  c0", "3 dead containers", "s-gone", "default_gone_"+gcUID, "its pod is gone", "4 steps", "note: cgroups not collected: open ")
	stdout, stderr, code = n.gc()
	if code != 0 || stderr != "" || strings.Join(n.r.Removed, " ") != "container c0 container c1 sandbox s-gone" {
		t.Fatalf("exit code %d, stderr %s, unexpected removals %v\n%s", code, stderr, n.r.Removed, stdout)
	}
	n.contains(stdout, "OUTCOME", "4 removed; freed: predicted 0, measured")
	if _, err := os.Stat(filepath.Join(n.dir, "root/var/log/pods/default_gone_"+gcUID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("logs of the pod that is gone: error %v, want not exist", err)
	}
	if stdout, _, code = n.gc(); code != 0 || !strings.Contains(stdout, "nothing to remove") {
		t.Errorf("second pass: exit code %d, want 0 and nothing to remove: %s", code, stdout)
	}
}

func TestGCPrintsJSON(t *testing.T) {
	asRoot(t)
	n := newGCNode(t, "")
	n.r.Fail["StopPodSandbox"] = errors.New("no")
	stdout, stderr, code := n.gc(inJSON)
	if code != 1 || stderr != "jettison: gc: 1 of 4 steps failed, the first: stop pod sandbox s-gone at runtime "+n.r.Endpoint()+": no\n" {
		t.Errorf("exit code %d, stderr %q, want 1 and the failed step", code, stderr)
	}
	var out planDocument
	if err := json.Unmarshal([]byte(stdout), &out); err != nil || out.Result == nil {
		t.Fatalf("JSON output without a result: error %v: %s", err, stdout)
	}
	if len(out.RemoveContainers) != 2 || len(out.RemoveSandboxes) != 1 || len(out.RemoveLogs) != 1 || len(out.Result.Steps) != 4 || out.Result.Steps[2].Outcome != "failed" || out.Result.Steps[3].FreedBytes == nil {
		t.Errorf("JSON output differs from the expected plan and result: %s", stdout)
	}
}

// An image service that does not answer blocks no removal of containers.
func TestGCWithoutImages(t *testing.T) {
	asRoot(t)
	n := newGCNode(t, "")
	n.r.Fail["ListImages"] = errors.New("no")
	stdout, stderr, code := n.gc()
	if code != 1 || !strings.HasPrefix(stderr, "jettison: gc: no image is removed, reading the images failed: list images of runtime ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d, stderr %q, want 1 and the error of the image service", code, stderr)
	}
	if got := strings.Join(n.r.Removed, " "); got != "container c0 container c1 sandbox s-gone" {
		t.Errorf("pass without images removed %s, want containers and the sandbox\n%s", got, stdout)
	}
}

// A missing host root or runtime is an error of one line with the action.
func TestGCPreconditions(t *testing.T) {
	asRoot(t)
	n := newGCNode(t, "")
	if _, stderr, code := n.gc(func(o *options) { o.hostRoot = n.dir + "/none" }); code != 1 || !strings.HasSuffix(stderr, "name the node's root directory with --host-root\n") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("without a host root: exit code %d with %q, want 1 with the action", code, stderr)
	}
	n.r.Stop()
	if _, stderr, code := n.gc(); code != 1 || !strings.HasPrefix(stderr, "jettison: gc: container runtime "+n.r.Endpoint()+": no such socket: start the runtime") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("without a runtime: exit code %d with %q, want 1 with the action", code, stderr)
	}
}

// Pods of static manifests are not gone; if a manifest cannot be read, no pod counts as gone.
func TestGCKnowsStaticManifests(t *testing.T) {
	asRoot(t)
	for name, c := range map[string]struct {
		manifest string
		want     string
	}{
		"named":     {"apiVersion: v1\nkind: Pod\nmetadata: {name: gone, namespace: default, uid: " + gcUID + "}\nspec: {containers: [{name: main, image: x}]}\n", "container c0 container c1"},
		"malformed": {"{", "container c0 container c1"},
		"another":   {"apiVersion: v1\nkind: Pod\nmetadata: {name: other, namespace: default}\nspec: {containers: [{name: main, image: x}]}\n", "container c0 container c1 sandbox s-gone"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newGCNode(t, "staticPodPath: /manifests\n")
			n.write("root/manifests/pod.yaml", c.manifest)
			stdout, stderr, code := n.gc()
			if got := strings.Join(n.r.Removed, " "); code != 0 || got != c.want {
				t.Errorf("exit code %d, stderr %s, removed %q, want %q\n%s", code, stderr, got, c.want, stdout)
			}
			if (name == "malformed") != strings.Contains(stdout, "note: no pod counts as gone: some static manifests cannot be read") {
				t.Errorf("note on unreadable manifests missing or unexpected: %s", stdout)
			}
		})
	}
}

// If clients of an agent name pods, or the agent does not report whether they do, no pod counts as gone, whatever the static manifests say.
func TestGCAlongsideAgent(t *testing.T) {
	asRoot(t)
	all := "container c0 container c1 sandbox s-gone"
	for answer, c := range map[string]struct{ want, note string }{
		`{"pods": {"runtime": 9, "objects": 7, "clients": 0}}`: {all, ""},
		`{"pods": {"runtime": 9, "objects": 1, "clients": 1}}`: {"container c0 container c1", "the agent knows 1 pod from clients"},
		`{"pods": {"runtime": 9, "objects": 0}}`:               {"container c0 container c1", "an agent may be running, and its pods are unknown"},
		`{`:                                                    {"container c0 container c1", "an agent may be running, and its pods are unknown"},
	} {
		n := newGCNode(t, "staticPodPath: /manifests\n")
		// This command reads one manifest that the agent has not read yet, so that the counts are equal.
		n.write("root/manifests/live.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: live, namespace: default, uid: live}\nspec: {containers: [{name: main, image: x}]}\n")
		l, err := net.Listen("unix", filepath.Join(n.dir, "socket"))
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "%s", answer) })}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(l) }()
		stdout, stderr, code := n.gc()
		if got := strings.Join(n.r.Removed, " "); code != 0 || got != c.want || !strings.Contains(stdout, c.note) || (c.note == "") != !strings.Contains(stdout, "no pod counts as gone") {
			t.Errorf("agent answers %s: exit code %d, stderr %s, removed %q, want %q\n%s", answer, code, stderr, got, c.want, stdout)
		}
		_ = server.Close()
		<-done
	}
}

// A socket without a listener belongs to an agent that has ended.
func TestGCAfterAgentEnded(t *testing.T) {
	asRoot(t)
	n := newGCNode(t, "")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(n.dir, "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := n.gc(); code != 0 || len(n.r.Removed) != 3 {
		t.Errorf("exit code %d, stderr %s, unexpected removals %v\n%s", code, stderr, n.r.Removed, stdout)
	}
}

// With gc: observe a pass removes only leftovers of evictions.
func TestGCObserves(t *testing.T) {
	asRoot(t)
	n := newGCNode(t, "")
	text, err := os.ReadFile(n.config)
	if err != nil {
		t.Fatal(err)
	}
	n.write("config.yaml", strings.Replace(string(text), "gc: act", "gc: observe", 1))
	stdout, stderr, code := n.gc()
	if code != 0 || len(n.r.Removed) > 0 || !strings.Contains(stdout, "nothing removed: gc: observe") {
		t.Errorf("exit code %d, stderr %s, unexpected removals %v\n%s", code, stderr, n.r.Removed, stdout)
	}
	n.write("root/var/lib/kubelet/pods/"+gcUID+"/volumes/.jettison-removes/v/data", "x") // leftover of an eviction, removed in spite of gc: observe
	stdout, stderr, code = n.gc()
	if code != 0 || len(n.r.Removed) > 0 || !strings.Contains(stdout, "volumes left by evictions: 1 removed; nothing else removed: gc: observe") {
		t.Errorf("exit code %d, stderr %s, unexpected removals %v\n%s", code, stderr, n.r.Removed, stdout)
	}
}
