package garbage

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/cri/critest"
	"jettison/internal/node/config"
	"jettison/reclaim"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// uidLabel is the kubelet's label for the pod of a container.
const uidLabel = "io.kubernetes.pod.uid"

const (
	uidA = "00000000-0000-0000-0000-00000000000a"
	uidB = "00000000-0000-0000-0000-00000000000b"
)

// node is a node in a directory, with a fake runtime and a disk of 1000 bytes. Each image uses the
// bytes in takes, or its Size.
type node struct {
	*Collector
	t     testing.TB
	r     *critest.Runtime
	root  string
	state string
	known atomic.Pointer[Known]
	clock time.Time
	up    time.Duration // since the boot
	takes map[string]uint64
	other uint64 // bytes of the disk that other files use
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, r: critest.Start(t), root: t.TempDir(), state: t.TempDir(), clock: time.Now(), up: time.Hour, takes: map[string]uint64{}}
	n.known.Store(&Known{Synced: true})
	n.r.ImageFs = []*runtimev1.FilesystemUsage{{FsId: &runtimev1.FilesystemIdentifier{Mountpoint: "/images"}}}
	n.open(nil)
	return n
}

// open creates the Collector, and closes an earlier one.
func (n *node) open(change func(*Options)) {
	n.t.Helper()
	if n.Collector != nil {
		n.Collector.Close()
	}
	client, err := cri.Dial(n.r.Endpoint(), "")
	if err != nil {
		n.t.Fatal(err)
	}
	host, err := read.OpenHostRoot(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	o := Options{
		Collect: config.Collect{
			Policy: reclaim.DefaultPolicy(), PodGoneAfter: 5 * time.Minute, Mode: config.ModeAct, RootDir: "/kubelet", PodLogsDir: "/log/pods",
		},
		Runtime: client, Known: func() Known { return *n.known.Load() }, Host: host, StateDir: n.state,
	}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close(); client.Close(); host.Close() })
	n.Collector = c
	c.now = func() time.Time { return n.clock }
	c.uptime = func() time.Duration { return n.up }
	c.statfs = n.disk
}

// sleep advances the clocks.
func (n *node) sleep(d time.Duration) { n.clock, n.up = n.clock.Add(d), n.up+d }

func (n *node) disk(path string) (filesystem, error) {
	used := n.other
	n.r.Change(func() {
		for _, i := range n.r.Images {
			if takes, ok := n.takes[i.Id]; ok {
				used += takes
			} else {
				used += i.Size
			}
		}
	})
	if path != "/images" {
		return filesystem{2, reclaim.ImageFsSize{CapacityBytes: 1000, AvailableBytes: 500}}, nil
	}
	return filesystem{1, reclaim.ImageFsSize{CapacityBytes: 1000, AvailableBytes: 1000 - min(used, 1000)}}, nil
}

func (n *node) sandbox(id, uid string, ready bool, age time.Duration) {
	state := runtimev1.PodSandboxState_SANDBOX_NOTREADY
	if ready {
		state = runtimev1.PodSandboxState_SANDBOX_READY
	}
	n.r.Change(func() {
		n.r.Sandboxes = append(n.r.Sandboxes, &runtimev1.PodSandbox{
			Id: id, Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Namespace: "default", Name: "p-" + uid}, State: state, CreatedAt: n.clock.Add(-age).UnixNano(),
		})
	})
}

const (
	created = runtimev1.ContainerState_CONTAINER_CREATED
	running = runtimev1.ContainerState_CONTAINER_RUNNING
	exited  = runtimev1.ContainerState_CONTAINER_EXITED
	unknown = runtimev1.ContainerState_CONTAINER_UNKNOWN
)

func (n *node) container(id, sandbox, uid string, state runtimev1.ContainerState, age time.Duration, image string) {
	n.r.Change(func() {
		n.r.Containers = append(n.r.Containers, &runtimev1.Container{
			Id: id, PodSandboxId: sandbox, Metadata: &runtimev1.ContainerMetadata{Name: "main"}, State: state, CreatedAt: n.clock.Add(-age).UnixNano(),
			Labels: map[string]string{uidLabel: uid}, ImageId: image, Image: &runtimev1.ImageSpec{Image: image},
		})
	})
}

func (n *node) image(id string, size uint64) *runtimev1.Image {
	i := &runtimev1.Image{Id: id, Size: size, RepoTags: []string{id + ":1"}}
	n.r.Change(func() { n.r.Images = append(n.r.Images, i) })
	return i
}

func (n *node) file(path string) string {
	path = filepath.Join(n.root, path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, make([]byte, 5000), 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return path
}

func (n *node) link(target, path string) {
	path = filepath.Join(n.root, path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.Symlink(target, path)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) pass(what Kind, trigger reclaim.Trigger) Result {
	n.t.Helper()
	return n.Pass(n.t.Context(), what, trigger)
}

// seen records all images as long unused.
func (n *node) seen() {
	n.records = reclaim.Records{}
	for k, i := range n.r.Images {
		n.records[i.Id] = reclaim.ImageRecord{FirstDetected: n.clock.Add(-time.Hour), LastUsed: n.clock.Add(-time.Hour + time.Duration(k)*time.Second)}
	}
}

func (n *node) removed() (out []string) {
	n.r.Change(func() { out = slices.Clone(n.r.Removed) })
	return out
}

func (n *node) want(r Result, removed ...string) {
	n.t.Helper()
	if r.Err != nil {
		n.t.Fatal(r.Err)
	}
	if got := n.removed(); !slices.Equal(got, removed) {
		n.t.Errorf("removed %q, want %q; problems %q, %+v", got, removed, r.Problems(), r.Done)
	}
}

// outcome returns the outcome of the step for an object.
func outcome(t *testing.T, r Result, id string) Done {
	t.Helper()
	for _, d := range r.Done {
		if d.ID == id {
			return d
		}
	}
	t.Fatalf("no step for %q in %+v", id, r.Done)
	return Done{}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
