package podlister

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/cri/critest"
	"jettison/cri/nri"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The runtime is listed when it is asked for. Each answer is handed over once, the newest takes the place of one that was not taken, and
// it ends with its context.
func TestListing(t *testing.T) {
	runtime := critest.Start(t)
	client, err := cri.Dial(runtime.Endpoint(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	before := make(chan read.Index, 16)
	l := New(client, func(i read.Index) { before <- i })
	ctx, cancel := context.WithCancel(t.Context())
	wait := l.Start(ctx)
	if u := <-l.Updates(); u.Err != nil || len(u.Pods) != 0 {
		t.Errorf("%+v", u)
	}
	<-before
	runtime.Change(func() {
		runtime.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Name: "pod"}, CreatedAt: 1}}
	})
	l.Ask()
	<-before // it is not taken
	runtime.Change(func() { runtime.Fail = map[string]error{"ListPodSandbox": errors.New("down")} })
	for u := (Update{}); u.Err == nil; u = <-l.Updates() { // the failure, at last
		l.Ask()
	}
	cancel()
	wait()
}

// How soon the next list comes: at once where one failed or a young pod has no container yet, seldom where the runtime tells by itself.
func TestWhenTheNextListComes(t *testing.T) {
	l := New(nil, nil)
	young := read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: uid, Ready: true, CreatedAt: time.Now()}}})
	for _, c := range []struct {
		name string
		err  error
		told bool
		pods read.Index
		want time.Duration
	}{
		{"as ever", nil, false, nil, resync},
		{"it failed", errors.New("down"), true, nil, resyncSoon},
		{"it tells", nil, true, young, resyncTold},
		{"a young pod", nil, false, young, resyncSoon},
	} {
		l.Told(c.told)
		if got := l.next(c.err, c.pods); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// What the runtime tells anew of a container has its status asked for at the next list: it may have been resized.
func TestAContainerThatIsToldOfAnewIsAskedAbout(t *testing.T) {
	runtime := critest.Start(t)
	runtime.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Name: "pod"}, CreatedAt: 1}}
	for _, id := range []string{"a", "b"} {
		runtime.Containers = append(runtime.Containers, &runtimev1.Container{
			Id: id, PodSandboxId: "s", State: runtimev1.ContainerState_CONTAINER_RUNNING,
		})
	}
	client, err := cri.Dial(runtime.Endpoint(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p := NewPods(New(client, nil), nil, func(read.Index) {})
	pod := func(ids ...string) *cri.Listing {
		l := &cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: uid, Ready: true}}}
		for _, id := range ids {
			l.Containers = append(l.Containers, cri.Container{ID: id, SandboxID: "s", State: cri.Running, Running: true})
		}
		return l
	}
	p.OnListed(Update{Pods: read.NewIndex(*pod("a"))})
	limit, both, same := uint64(5), pod("a", "b"), "nothing is told"
	resized := pod("a", "b")
	resized.Containers[0].MemoryLimit = &limit
	for _, c := range []struct {
		what string
		pods nri.Pods
		want int
	}{
		{"at first", nil, 2}, // of both nothing is known
		{"what is told at first, b was not listed", nri.Pods{uid: both}, 1},
		{same, nil, 0},
		{"the same", nri.Pods{uid: both}, 0},
		{"another state of the pod", nri.Pods{uid: pod("a", "b")}, 2},
		{same, nil, 0},
		{"events are lost", nri.Pods{}, 0},
		{"and come again", nri.Pods{uid: resized}, 2},
	} {
		if c.pods != nil {
			p.OnTold(c.pods, true)
		}
		before := runtime.Calls("ContainerStatus")
		if _, err := p.list(t.Context()); err != nil || runtime.Calls("ContainerStatus")-before != c.want {
			t.Errorf("%s: %d statuses, want %d, %v", c.what, runtime.Calls("ContainerStatus")-before, c.want, err)
		}
	}
}
