package podlister

import (
	"context"
	"errors"
	"strconv"
	"strings"
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

// The runtime is listed on request. Each answer is sent once, the newest replaces an unread one,
// and the lister ends with its context.
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
		t.Errorf("first update = %+v, want no pods", u)
	}
	<-before
	runtime.Change(func() {
		runtime.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Name: "pod"}, CreatedAt: 1}}
	})
	l.Ask()
	<-before // the update is not read
	runtime.Change(func() { runtime.Fail = map[string]error{"ListPodSandbox": errors.New("down")} })
	for u := (Update{}); u.Err == nil; u = <-l.Updates() { // until the failure
		l.Ask()
	}
	cancel()
	wait()
}

// A list that may lack sandboxes, because those that are ready exceed one answer, began at no known
// time.
func TestIncompleteList(t *testing.T) {
	runtime := critest.Start(t)
	large := map[string]string{"x": strings.Repeat("x", 255<<10)}
	for i := range 70 {
		id := strconv.Itoa(i)
		runtime.Sandboxes = append(runtime.Sandboxes, &runtimev1.PodSandbox{Id: id, Metadata: &runtimev1.PodSandboxMetadata{Uid: id, Name: "p"}, Annotations: large})
	}
	client, err := cri.Dial(runtime.Endpoint(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l := New(client, nil)
	ctx, cancel := context.WithCancel(t.Context())
	wait := l.Start(ctx)
	if u := <-l.Updates(); u.Err != nil || !u.Began.IsZero() {
		t.Errorf("list of %d sandboxes: began %v, error %v, want a zero time", len(u.Pods), u.Began, u.Err)
	}
	runtime.Change(func() { runtime.Sandboxes = runtime.Sandboxes[:1] })
	for u := (Update{}); u.Began.IsZero(); u = <-l.Updates() { // until a complete list
		l.Ask()
	}
	cancel()
	wait()
}

// The next list follows soon after a failure or while a young pod lacks its containers, and rarely
// with events.
func TestIntervalOfLists(t *testing.T) {
	l := New(nil, nil)
	young := read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: uid, Ready: true, CreatedAt: time.Now()}}})
	for _, c := range []struct {
		name   string
		err    error
		events bool
		pods   read.Index
		want   time.Duration
	}{
		{"normal", nil, false, nil, resync},
		{"after a failure", errors.New("down"), true, nil, resyncSoon},
		{"with events", nil, true, young, resyncWithEvents},
		{"with a young pod", nil, false, young, resyncSoon},
	} {
		l.SetEvents(c.events)
		if got := l.next(c.err, c.pods); got != c.want {
			t.Errorf("%s: next list in %v, want %v", c.name, got, c.want)
		}
	}
}

// The next list requests the status of containers with events: they may have been resized.
func TestStatusOfChangedContainers(t *testing.T) {
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
	limit, both, same := uint64(5), pod("a", "b"), "no events"
	resized := pod("a", "b")
	resized.Containers[0].MemoryLimit = &limit
	for _, c := range []struct {
		what string
		pods nri.Pods
		want int
	}{
		{"first list", nil, 2}, // both are unknown
		{"first events, b was not listed", nri.Pods{uid: both}, 1},
		{same, nil, 0},
		{"unchanged events", nri.Pods{uid: both}, 0},
		{"another state of the pod", nri.Pods{uid: pod("a", "b")}, 2},
		{same, nil, 0},
		{"events are lost", nri.Pods{}, 0},
		{"events return", nri.Pods{uid: resized}, 2},
	} {
		if c.pods != nil {
			p.OnEvents(time.Now(), c.pods, true)
		}
		before := runtime.Calls("ContainerStatus")
		if _, err := p.list(t.Context()); err != nil || runtime.Calls("ContainerStatus")-before != c.want {
			t.Errorf("%s: %d requests of a status, want %d (%v)", c.what, runtime.Calls("ContainerStatus")-before, c.want, err)
		}
	}
}
