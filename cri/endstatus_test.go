package cri

import (
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container's end and the kind of its pod's owner are decoded from the statuses.
func TestStatusHasEndAndOwner(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 5, time.UTC)
	var got runtimev1.ContainerStatusResponse
	if err := decodePruned(t, &runtimev1.ContainerStatusResponse{Status: &runtimev1.ContainerStatus{
		Id: "c", State: runtimev1.ContainerState_CONTAINER_EXITED, ExitCode: 3, Reason: "Error", FinishedAt: at.UnixNano(),
	}}, &got, 7); err != nil {
		t.Fatal(err)
	}
	if c := containerStatusOf(&got); c.Ended == nil || c.Ended.Code != 3 || c.Ended.Reason != "Error" || !c.Ended.At.Equal(at) {
		t.Errorf("end of the container = %+v, want that of the status", c.Ended)
	}
	for label, owner := range map[string]string{
		"pod-template-hash": "ReplicaSet", "controller-revision-hash": "DaemonSet", "statefulset.kubernetes.io/pod-name": "StatefulSet",
		"batch.kubernetes.io/job-name": "Job", "app": "",
	} {
		var got runtimev1.PodSandboxStatusResponse
		if err := decodePruned(t, &runtimev1.PodSandboxStatusResponse{Status: &runtimev1.PodSandboxStatus{
			Id: "s", Labels: map[string]string{label: "v"},
		}}, &got, 7); err != nil {
			t.Fatal(err)
		}
		if d := sandboxDetailOf(&got); d.owner != owner {
			t.Errorf("owner for label %s = %q, want %q", label, d.owner, owner)
		}
	}
}

// The end of a container is requested once, and its other cached details stay.
func TestEndIsRequestedOnce(t *testing.T) {
	r := node(t)
	r.Info["c1"] = crioContainer
	l := NewLister(dial(t, r.Endpoint()))
	now := time.Now()
	l.now = func() time.Time { return now }
	l.SetEvents(true, nil) // the events do not report the end
	if _, err := l.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Change(func() {
		r.Containers[0].State = runtimev1.ContainerState_CONTAINER_EXITED
		r.ContainerStatuses["c1"] = &runtimev1.ContainerStatus{
			State: runtimev1.ContainerState_CONTAINER_EXITED, ExitCode: 4, FinishedAt: 5,
		}
	})
	now = now.Add(2 * refreshAge)
	for range 3 {
		now = now.Add(time.Second)
		got, err := l.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c := got.Containers[0]; c.Ended == nil || c.Ended.Code != 4 || c.OOMScoreAdj == nil {
			t.Errorf("exited container = %+v, want its end and the cached details", c)
		}
	}
	asked := r.Calls("ContainerStatus")
	now = now.Add(2 * refreshAge)
	if _, err := l.List(t.Context()); err != nil || r.Calls("ContainerStatus") > asked+1 { // of the other one, which runs
		t.Errorf("error %v; status calls = %d, want still %d", err, r.Calls("ContainerStatus"), asked)
	}
}

// The status of an exited container that hangs delays four lists, two for the verbose status and two for
// the plain one, and no further one for an hour.
func TestHungStatusOfAnExitedContainer(t *testing.T) {
	r := node(t)
	r.Containers = r.Containers[:1]
	r.Info["c1"] = crioContainer
	c := dial(t, r.Endpoint())
	l := NewLister(c)
	now := time.Now()
	l.now = func() time.Time { return now }
	if _, err := l.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Change(func() {
		r.Containers[0].State = runtimev1.ContainerState_CONTAINER_EXITED
		r.Hang["ContainerStatus"] = true
	})
	c.timeouts.status = 20 * time.Millisecond
	before := r.Calls("ContainerStatus")
	for range 20 {
		now = now.Add(refreshAge)
		if _, err := l.List(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.Calls("ContainerStatus") - before; n > 4 {
		t.Errorf("%d status calls in 20 minutes, want at most 4", n)
	}
}
