// Package nodetest provides a node for unit tests: a tree of files in place of cgroups and /proc, and
// a fake runtime.
package nodetest

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/cri/critest"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/sources"
	"jettison/stats/read"
)

// UID is the UID of a Node's first pod, Pod its cgroup below the root.
const (
	UID = "12345678-1234-1234-1234-123456789abc"
	Pod = "kubepods/besteffort/pod" + UID
)

// Node is a node with 1 GiB of memory and one pod that uses 400 MiB.
type Node struct {
	*sources.Sources
	Dir     string // "cgroup" and "proc" are below it
	Runtime *critest.Runtime
	Log     *logthrottle.Logger
	t       testing.TB
	text    text
}

// text collects the log, from any goroutine.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer // mu guards it
}

func (x *text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(b)
}

// New creates a Node that is removed at the end of the test.
func New(t testing.TB) *Node {
	t.Helper()
	n := &Node{t: t, Dir: t.TempDir()}
	n.Log = logthrottle.New(slog.New(slog.NewTextHandler(&n.text, nil)))
	n.Write("cgroup/cgroup.procs", "")
	n.Write("cgroup/memory.stat", "anon 0\nfile 0\nshmem 0\ninactive_file 0\n")
	n.AddPod(Pod, 400)
	n.Available(500)
	fs, err := cgroup.OpenTree(filepath.Join(n.Dir, "cgroup"))
	n.must(err)
	proc, err := read.OpenProc(n.Proc())
	n.must(err)
	reader, err := read.NewReader(fs, proc, "")
	n.must(err)
	n.Runtime = critest.Start(t)
	client, err := cri.Dial(n.Runtime.Endpoint(), "")
	n.must(err)
	n.Sources = &sources.Sources{FS: fs, Proc: proc, Reader: reader, Client: client}
	t.Cleanup(n.Close)
	return n
}

func (n *Node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// Proc returns the path of the node's /proc.
func (n *Node) Proc() string { return filepath.Join(n.Dir, "proc") }

// Write writes a text to a file of the node. A concurrent reader never finds the file empty,
// because the kernel's files never are.
func (n *Node) Write(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.Dir, name)
	n.must(os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	n.must(err)
	_, err = f.WriteAt([]byte(text), 0)
	n.must(err)
	n.must(f.Truncate(int64(len(text))))
	n.must(f.Close())
}

// AddPod creates the cgroup of a pod that uses this many MiB.
func (n *Node) AddPod(path string, mib int) {
	n.t.Helper()
	pod := "cgroup/" + path + "/"
	n.Write(pod+"cgroup.procs", "")
	n.Populated(path, true)
	n.Write(pod+"memory.current", fmt.Sprintln(mib<<20))
	n.Write(pod+"memory.stat", fmt.Sprintf("anon %d\nfile 0\nshmem 0\ninactive_file 0\n", mib<<20))
}

// Populated sets whether a pod has processes.
func (n *Node) Populated(path string, is bool) {
	n.t.Helper()
	number := 0
	if is {
		number = 1
	}
	n.Write("cgroup/"+path+"/cgroup.events", fmt.Sprintf("populated %d\nfrozen 0\n", number))
}

// Available sets the kernel's MemAvailable, in MiB.
func (n *Node) Available(mib int) {
	n.t.Helper()
	n.Write("proc/meminfo", fmt.Sprintf("MemTotal: 1048576 kB\nMemAvailable: %d kB\n", mib<<10))
}

// Runs adds the first pod with one container to the fake runtime, and returns its list.
func (n *Node) Runs() read.Index {
	n.t.Helper()
	n.Runtime.Change(func() {
		n.Runtime.Sandboxes = []*runtimev1.PodSandbox{{
			Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: UID, Name: "pod", Namespace: "default"},
			CreatedAt: 1,
		}}
		n.Runtime.Containers = []*runtimev1.Container{{
			Id: "c", PodSandboxId: "s", State: runtimev1.ContainerState_CONTAINER_RUNNING,
			Metadata: &runtimev1.ContainerMetadata{Name: "c"},
		}}
	})
	listing, err := cri.NewLister(n.Client).List(n.t.Context())
	n.must(err)
	return read.NewIndex(listing)
}

// Text returns the log.
func (n *Node) Text() string {
	n.text.mu.Lock()
	defer n.text.mu.Unlock()
	return n.text.b.String()
}
