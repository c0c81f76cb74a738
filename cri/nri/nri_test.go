package nri

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"jettison/cri"
)

// patience is the time that tests wait for an expected event.
const patience = 2 * time.Minute

// silent is a logger for the runtime's side.
type silent struct{}

func (silent) Debugf(context.Context, string, ...interface{}) {}
func (silent) Infof(context.Context, string, ...interface{})  {}
func (silent) Warnf(context.Context, string, ...interface{})  {}
func (silent) Errorf(context.Context, string, ...interface{}) {}

// TestMain raises the timeouts of containerd's side for busy machines: by default it disconnects a
// plugin that takes longer than 2 s for a request, or 5 s to register.
func TestMain(m *testing.M) {
	nrilog.Set(silent{})
	adaptation.SetPluginRegistrationTimeout(patience)
	adaptation.SetPluginRequestTimeout(patience)
	os.Exit(m.Run())
}

// runtime starts containerd's own side of the protocol, with these pods and containers.
func runtime(t testing.TB, socket string, pods []*api.PodSandbox, containers []*api.Container) *adaptation.Adaptation {
	t.Helper()
	dir := t.TempDir()
	list := func(ctx context.Context, sync adaptation.SyncCB) error {
		_, err := sync(ctx, pods, containers)
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	r, err := adaptation.New("fake", "v1.2", list, update, adaptation.WithSocketPath(socket),
		adaptation.WithPluginPath(dir), adaptation.WithPluginConfigPath(dir))
	if err == nil {
		err = r.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// start runs a plugin until the test ends.
func start(t testing.TB, o Options) *Plugin {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	p.firstRetry, p.maxRetry = time.Millisecond, 10*time.Millisecond
	run(t, p)
	return p
}

func run(t testing.TB, p *Plugin) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		p.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// wait receives Updates until one satisfies the condition.
func wait(t testing.TB, p *Plugin, what string, wanted func(Update) bool) Update {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var last Update
	for {
		select {
		case last = <-p.Updates():
			if wanted(last) {
				return last
			}
		case <-timer.C:
			t.Fatalf("no update with %s; the last one: %+v", what, last.State)
		}
	}
}

func synced(u Update) bool { return u.State.Synced }

func socketIn(t testing.TB) string { return filepath.Join(t.TempDir(), "nri.sock") }

// pod and container return objects like those of a kubelet's pod.
func pod(n int) *api.PodSandbox {
	return &api.PodSandbox{
		Id: fmt.Sprintf("sandbox%d", n), Name: fmt.Sprintf("pod-%d", n), Uid: fmt.Sprintf("uid-%d", n), Namespace: "default",
		Annotations: map[string]string{"kubernetes.io/config.source": "api", "jettison/priority": "7",
			"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 1000)},
		Labels: map[string]string{"app": "a"}, Pid: uint32(1000 + n),
		Linux: &api.LinuxPodSandbox{CgroupParent: fmt.Sprintf("/kubepods/burstable/poduid-%d", n),
			PodOverhead:  &api.LinuxResources{Memory: &api.LinuxMemory{Limit: api.Int64(int64(120 << 20))}},
			PodResources: &api.LinuxResources{Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 30))}},
			Namespaces:   []*api.LinuxNamespace{{Type: "pid"}, {Type: "network", Path: "/var/run/netns/cni-1"}}},
	}
}

func container(p, n int, state api.ContainerState) *api.Container {
	return &api.Container{
		Id: fmt.Sprintf("c%d-%d", p, n), PodSandboxId: fmt.Sprintf("sandbox%d", p), Name: fmt.Sprintf("main%d", n), State: state,
		Annotations: map[string]string{"io.kubernetes.container.restartCount": "3"}, Pid: uint32(5000 + n), CreatedAt: 1e18, StartedAt: 1e18 + 1,
		Args: []string{"sh", "-c", "sleep"}, Env: []string{"A=b"}, Image: &api.Image{Name: "img:1", ConfigDigest: "sha256:1"},
		Linux: &api.LinuxContainer{OomScoreAdj: api.Int(-997), Resources: &api.LinuxResources{
			Memory: &api.LinuxMemory{Limit: api.Int64(int64(64 << 20))}, Unified: map[string]string{"memory.low": "1024"},
			Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(512)), Quota: api.Int64(int64(-1)), Period: api.UInt64(uint64(100000))},
		}},
	}
}

// Pods are those of the runtime when the plugin connects, updated by its events.
func TestPodsFollowTheRuntime(t *testing.T) {
	socket, ctx := socketIn(t), context.Background()
	dead := pod(9)
	dead.Pid = 0
	r := runtime(t, socket, []*api.PodSandbox{pod(1), dead}, []*api.Container{
		container(1, 1, api.ContainerState_CONTAINER_RUNNING), container(1, 2, api.ContainerState_CONTAINER_STOPPED),
		container(404, 1, api.ContainerState_CONTAINER_RUNNING),
	})
	p := start(t, Options{Socket: socket})
	u := wait(t, p, "pods", synced)
	r.BlockPluginSync().Unblock() // the runtime sends events from then on
	if s := u.State; s.Runtime != "fake" || s.Version != "v1.2" || s.Err != nil || s.Skipped != 0 {
		t.Errorf("state after Synchronize = %+v, not as expected", s)
	}
	if len(u.Pods) != 2 || u.Pods["uid-9"].Sandboxes[0].Ready {
		t.Errorf("pods after Synchronize = %v, not as expected", u.Pods)
	}
	one := u.Pods["uid-1"]
	ofPod, overhead := uint64(1<<30), uint64(120<<20)
	wantSandbox := cri.PodSandbox{ID: "sandbox1", UID: "uid-1", Name: "pod-1", Namespace: "default", Ready: true, PID: 1001,
		Annotations:  map[string]string{"kubernetes.io/config.source": "api", "jettison/priority": "7"},
		CgroupParent: "/kubepods/burstable/poduid-1", MemoryLimit: &ofPod, Overhead: &overhead}
	if d := cmp.Diff([]cri.PodSandbox{wantSandbox}, one.Sandboxes); d != "" {
		t.Error(d)
	}
	adj, limit, shares := int64(-997), uint64(64<<20), uint64(512)
	wantContainer := cri.Container{ID: "c1-1", SandboxID: "sandbox1", Name: "main1", Attempt: 3, State: cri.Running, Running: true,
		CreatedAt: time.Unix(0, 1e18), StartedAt: time.Unix(0, 1e18+1), Image: "img:1", ImageID: "sha256:1", OOMScoreAdj: &adj,
		MemoryLimit: &limit, CPUShares: &shares, Unified: map[string]string{"memory.low": "1024"}, PID: 5001}
	if d := cmp.Diff([]cri.Container{wantContainer}, one.Containers); d != "" {
		t.Error(d)
	}

	check(t, r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(2)}))
	u = wait(t, p, "the new pod", func(u Update) bool { return u.Pods["uid-2"] != nil })
	if s := u.Pods["uid-2"].Sandboxes[0]; !s.Ready || time.Since(s.CreatedAt) > time.Minute {
		t.Errorf("new sandbox = %+v, not as expected", s)
	}
	_, err := r.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod(2), Container: container(2, 1, 0)})
	check(t, err)
	wait(t, p, "the created container", func(u Update) bool {
		c := u.Pods["uid-2"].Containers
		return len(c) == 1 && c[0].State == cri.Created && !c[0].Running
	})
	check(t, r.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod(2), Container: container(2, 1, 0)}))
	wait(t, p, "the running container", func(u Update) bool { return u.Pods["uid-2"].Containers[0].Running })
	more := container(2, 1, api.ContainerState_CONTAINER_RUNNING)
	more.Linux.Resources.Memory.Limit = api.Int64(int64(128 << 20))
	check(t, r.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: pod(2), Container: more}))
	wait(t, p, "the new limit", func(u Update) bool { return *u.Pods["uid-2"].Containers[0].MemoryLimit == 128<<20 })
	_, err = r.StopContainer(ctx, &api.StopContainerRequest{Pod: &api.PodSandbox{Id: "sandbox2"}, Container: container(2, 1, api.ContainerState_CONTAINER_STOPPED)})
	check(t, err)
	wait(t, p, "no container", func(u Update) bool { return len(u.Pods["uid-2"].Containers) == 0 })
	check(t, r.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod(2)}))
	wait(t, p, "the stopped sandbox", func(u Update) bool { return !u.Pods["uid-2"].Sandboxes[0].Ready })
	check(t, r.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod(2)}))
	last := wait(t, p, "no such pod", func(u Update) bool { return u.Pods["uid-2"] == nil })
	if last.Pods["uid-1"] != one {
		t.Error("the listing of an unchanged pod was replaced")
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The sandbox and the containers of a pod in its hold-off are rejected. Other pods start, and so
// does the pod after its hold-off.
func TestHeldOffPodIsRejected(t *testing.T) {
	socket, ctx, holds := socketIn(t), context.Background(), &HoldOffs{}
	r := runtime(t, socket, nil, nil)
	p := start(t, Options{Socket: socket, HoldOffs: holds})
	wait(t, p, "a connection", synced)
	r.BlockPluginSync().Unblock()
	holds.Set(time.Now(), "uid-1", Hold{Until: time.Now().Add(time.Hour), Reason: "memory.available 90Mi < 100Mi"})
	err := r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(1)})
	left := regexp.MustCompile(`jettison holds pod default/pod-1 off for another (1h0m0s|5\dm\d+s): memory\.available 90Mi < 100Mi`)
	if err == nil || !left.MatchString(err.Error()) {
		t.Errorf("error of the held-off sandbox = %v", err)
	}
	_, err = r.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod(1), Container: container(1, 1, 0)})
	if err == nil || !strings.Contains(err.Error(), "memory.available") {
		t.Errorf("error of the held-off container = %v", err)
	}
	var vetoes []Veto
	u := wait(t, p, "two vetoes", func(u Update) bool {
		vetoes = append(vetoes, u.Vetoes...)
		return len(vetoes) == 2
	})
	if vetoes[0].Container != "" || vetoes[1].Container != "main1" || vetoes[0].UID != "uid-1" || u.Pods["uid-1"] != nil {
		t.Errorf("update has vetoes %+v and pods %v", vetoes, u.Pods)
	}
	holds.Set(time.Now(), PodKey("default", "pod-2"), Hold{Until: time.Now().Add(time.Hour), Reason: "by its name"})
	if err = r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(2)}); err == nil || !strings.Contains(err.Error(), "by its name") {
		t.Errorf("error of a pod held off by its name = %v", err)
	}
	holds.Set(time.Now(), PodKey("default", "pod-2"), Hold{Until: time.Now().Add(-time.Second)})
	check(t, r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(2)}))
	made := func(n int, name string, labels map[string]string) *api.PodSandbox {
		p := pod(n)
		p.Name, p.Labels = name, labels
		return p
	}
	mine, others := map[string]string{"app": "a", "pod-template-generation": "1"}, map[string]string{"controller-revision-hash": "x"}
	holds.Set(time.Now(), DaemonSetKey("default", "agent-abcde"), Hold{Until: time.Now().Add(time.Hour), Reason: "by what made it"})
	for _, c := range []struct {
		pod *api.PodSandbox
		out bool
	}{
		{made(3, "agent-fghij", mine), true}, {made(4, "agent-fghij", others), false}, {made(5, "agents-fghij", mine), false},
		{made(6, "agent", mine), false},
	} {
		_, err := r.CreateContainer(ctx, &api.CreateContainerRequest{Pod: c.pod, Container: container(3, 1, 0)})
		for _, err := range []error{r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: c.pod}), err} {
			if (err != nil) != c.out || c.out && !strings.Contains(err.Error(), "by what made it") {
				t.Errorf("pod %s with labels %v: error %v", c.pod.Name, c.pod.Labels, err)
			}
		}
	}
	holds.Set(time.Now(), "uid-1", Hold{Until: time.Now().Add(-time.Second)})
	check(t, r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(1)}))
	wait(t, p, "all but the one", func(u Update) bool { return len(u.Pods) == 5 && u.Pods["uid-3"] == nil })
}

// 1000 pods with 4 containers each take more than one message: 4 MiB is the protocol's limit.
func TestSynchronizeInParts(t *testing.T) {
	var pods []*api.PodSandbox
	var containers []*api.Container
	for i := range 1000 {
		pods = append(pods, pod(i))
		for j := range 4 {
			c := container(i, j, api.ContainerState_CONTAINER_RUNNING)
			c.Env = []string{"BIG=" + strings.Repeat("e", 2000)}
			containers = append(containers, c)
		}
	}
	socket := socketIn(t)
	runtime(t, socket, pods, containers)
	u := wait(t, start(t, Options{Socket: socket}), "pods", synced)
	n := 0
	for _, p := range u.Pods {
		n += len(p.Containers)
	}
	if len(u.Pods) != 1000 || n != 4000 || u.State.Skipped != 0 {
		t.Errorf("update has %d pods, %d containers, %d skipped", len(u.Pods), n, u.State.Skipped)
	}
}

// An Update that is not received delays nothing; the last one is complete.
func TestUpdatesAreNotReceived(t *testing.T) {
	socket, ctx, holds := socketIn(t), context.Background(), &HoldOffs{}
	r := runtime(t, socket, nil, nil)
	p := start(t, Options{Socket: socket, HoldOffs: holds})
	wait(t, p, "a connection", synced)
	r.BlockPluginSync().Unblock()
	holds.Set(time.Now(), "uid-7", Hold{Until: time.Now().Add(time.Hour)})
	for i := range 300 {
		if err := r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(i)}); (err != nil) != (i == 7) {
			t.Fatal(i, err)
		}
		_ = r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod(7)})
	}
	vetoes := 0
	wait(t, p, "all pods", func(u Update) bool {
		vetoes += len(u.Vetoes)
		return len(u.Pods) == 299 && vetoes >= 1
	})
}

// The vetoes of an Update that was not received are in the next one. If there are too many, the
// latest are kept.
func TestVetoesAreNotLost(t *testing.T) {
	p, err := New(Options{})
	check(t, err)
	for i := range maxVetoes + 2 {
		p.vetoes = []Veto{{Reason: fmt.Sprint(i)}}
		p.publish()
	}
	u := <-p.Updates()
	if len(u.Vetoes) != maxVetoes || u.Vetoes[0].Reason != "2" || u.Vetoes[maxVetoes-1].Reason != fmt.Sprint(maxVetoes+1) {
		t.Errorf("vetoes in the update = %d: %v", len(u.Vetoes), u.Vetoes)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Socket: "nri.sock"}, {Socket: "/" + strings.Repeat("x", 107)}, {Socket: "/a\x00b"}} {
		if _, err := New(o); err == nil {
			t.Errorf("New() accepted invalid options %+v", o)
		}
	}
	if p, err := New(Options{Socket: "unix:///run/x.sock"}); err != nil || p.o.Socket != "/run/x.sock" {
		t.Errorf("plugin with default options = %+v, error %v", p, err)
	}
}

// A missing socket is reported once, and the plugin connects when it appears.
func TestSocketAppearsLate(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	socket := socketIn(t)
	p, err := New(Options{Socket: socket})
	check(t, err)
	p.firstRetry, p.maxRetry = time.Millisecond, time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		p.Run(ctx)
		close(done)
	}()
	u := wait(t, p, "an error", func(u Update) bool { return u.State.Err != nil })
	if text := u.State.Err.Error(); !strings.Contains(text, socket) || !strings.Contains(text, "no such file") || u.Pods != nil {
		t.Errorf("state has error %v and pods %v", text, u.Pods)
	}
	l, err := net.Listen("unix", socket+".new")
	check(t, err)
	// between bind and listen the socket would refuse connections, which is another error
	check(t, os.Rename(socket+".new", socket))
	c, err := l.Accept() // many attempts later
	check(t, err)
	select {
	case u := <-p.Updates():
		t.Errorf("the same failure was published again: %+v", u.State)
	default:
	}
	cancel()
	<-done
	c.Close()
	l.Close()
}
