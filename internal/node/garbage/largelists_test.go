package garbage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/reclaim"
)

// annotated gives sandboxes as many annotations as an API server accepts: 65 of them exceed one
// answer.
func annotated(of []*runtimev1.PodSandbox) {
	for _, s := range of {
		s.Annotations = map[string]string{"x": strings.Repeat("x", 255<<10)}
	}
}

// Finished pods with annotations that exceed one answer do not block garbage collection.
func TestFinishedPodsTooLargeForOneAnswer(t *testing.T) {
	for _, trigger := range []reclaim.Trigger{reclaim.Periodic, reclaim.DiskPressure} {
		n := full(t)
		evicted := map[string]reclaim.Phase{uidA: reclaim.Active}
		n.sandbox("s", uidA, true, time.Hour)
		n.container("c", "s", uidA, running, time.Hour, "sha256:1")
		for i := range 70 {
			uid, s := fmt.Sprintf("00000000-0000-0000-0000-%012d", i), fmt.Sprintf("o%02d", i)
			evicted[uid] = reclaim.Evicted
			n.sandbox(s, uid, false, time.Hour)
			n.container("c"+s, s, uid, exited, time.Hour, "sha256:2")
		}
		annotated(n.r.Sandboxes[1:])
		n.known.Store(&Known{Pods: evicted, Synced: true})
		r := n.pass(Everything, trigger)
		if got := n.removed(); r.Err != nil || len(got) != 2*70+2 || slices.Contains(got, "image sha256:1") {
			t.Errorf("%v: removed %d, want 142, %v; %v", trigger, len(got), got, r.Problems())
		}
		if n.pass(Everything, trigger); len(n.r.Sandboxes) != 1 || len(n.r.Containers) != 1 {
			t.Errorf("%v: %d sandboxes, %d containers are left", trigger, len(n.r.Sandboxes), len(n.r.Containers))
		}
	}
}

// A pass that ends after the removal of containers leaves empty sandboxes that no container names:
// the next pass removes them.
func TestFinishedPodsTooLargeWithoutContainers(t *testing.T) {
	n := newNode(t)
	evicted := map[string]reclaim.Phase{}
	for i := range 70 {
		uid, s := fmt.Sprintf("00000000-0000-0000-0000-%012d", i), fmt.Sprintf("o%02d", i)
		evicted[uid] = reclaim.Evicted
		n.sandbox(s, uid, false, time.Hour)
		n.container("c"+s, s, uid, exited, time.Hour, "")
	}
	annotated(n.r.Sandboxes)
	n.known.Store(&Known{Pods: evicted, Synced: true})
	n.r.Fail["StopPodSandbox"] = fmt.Errorf("not now")
	n.pass(Containers, reclaim.Periodic)
	n.r.Change(func() { clear(n.r.Fail) })
	n.sleep(time.Hour)
	if n.pass(Containers, reclaim.Periodic); len(n.r.Sandboxes) > 0 || len(n.r.Containers) > 0 {
		t.Errorf("%d sandboxes, %d containers are left", len(n.r.Sandboxes), len(n.r.Containers))
	}
}

// unlistedReady returns a node on which an unnamed pod has a ready sandbox without a container. The
// runtime cannot list this sandbox, nor those of 70 other pods, in one answer. Another pod has one
// dead container more than is kept. Images were last used an hour ago.
func unlistedReady(t *testing.T) (n *node, log string) {
	n = full(t)
	log = n.file("/log/pods/default_p_" + uidB + "/main/0.log")
	named := map[string]reclaim.Phase{uidA: reclaim.Active}
	n.sandbox("mine", uidB, true, time.Hour)
	n.sandbox("s", uidA, true, time.Hour)
	n.container("old", "s", uidA, exited, time.Hour, "sha256:4")
	n.container("new", "s", uidA, exited, time.Minute, "sha256:4")
	for i := range 70 {
		uid, s := fmt.Sprintf("00000000-0000-0000-0000-%012d", i), fmt.Sprint("r", i)
		named[uid] = reclaim.Active
		n.sandbox(s, uid, true, time.Hour)
		n.container("c"+s, s, uid, running, time.Hour, "sha256:4")
	}
	annotated(n.r.Sandboxes)
	n.known.Store(&Known{Pods: named, Synced: true})
	n.wait = 10 * time.Millisecond
	return n, log
}

// Unlisted ready sandboxes count as alive: no pod counts as gone meanwhile, nor soon afterwards,
// and image removals are postponed as for a young sandbox. Other garbage is removed.
func TestReadySandboxesThatAreNotTold(t *testing.T) {
	n, log := unlistedReady(t)
	if r := n.pass(Everything, reclaim.Periodic); r.Err != nil || !slices.Equal(n.removed(), []string{"container old"}) {
		t.Errorf("removed %v, %v, want only container old", n.removed(), r.Err)
	}
	for range 5 {
		n.sleep(n.o.PodGoneAfter)
		if r := n.pass(Containers, reclaim.DiskPressure); len(r.Done) > 0 {
			t.Errorf("steps of the second pass = %+v, want none", r.Done)
		}
	}
	if !exists(log) {
		t.Error("the log of a pod that lives is gone")
	}
	if n.pass(Images, reclaim.Periodic); !slices.Contains(n.removed(), "image sha256:1") || slices.Contains(n.removed(), "image sha256:4") {
		t.Errorf("images do not wait for ever, and what is used stays: removed %v", n.removed())
	}
	n.r.Change(func() { // its sandbox ends, and the others shrink: now the lists show that nothing of the pod is alive
		for _, s := range n.r.Sandboxes {
			s.Annotations = nil
		}
		n.r.Sandboxes[0].State = runtimev1.PodSandboxState_SANDBOX_NOTREADY
	})
	if n.pass(Containers, reclaim.Periodic); !exists(log) {
		t.Error("the log of a pod that lived a moment ago is gone")
	}
	n.sleep(n.o.PodGoneAfter)
	if n.pass(Containers, reclaim.Periodic); exists(log) {
		t.Error("the log of a pod that is gone stays")
	}
}

// Such sandboxes appear between a look and its steps: planned removals for a quiet pod are skipped.
func TestReadySandboxesThatAreNotToldAnyMore(t *testing.T) {
	n := newNode(t)
	log := n.file("/log/pods/default_p_" + uidB + "/main/0.log")
	n.sandbox("old", uidA, false, time.Hour)
	n.pass(Containers, reclaim.Periodic)
	n.sleep(n.o.PodGoneAfter)
	n.r.Answer["ListContainers"] = func(m any) any {
		if len(n.r.Sandboxes) > 70 {
			return m
		}
		for i := range 70 {
			n.r.Sandboxes = append(n.r.Sandboxes, &runtimev1.PodSandbox{
				Id: fmt.Sprint("r", i), Metadata: &runtimev1.PodSandboxMetadata{Uid: fmt.Sprintf("00000000-0000-0000-0000-%012d", i)},
			})
		}
		n.r.Sandboxes = append(n.r.Sandboxes, &runtimev1.PodSandbox{Id: "back", Metadata: &runtimev1.PodSandboxMetadata{Uid: uidB}})
		annotated(n.r.Sandboxes[1:])
		return m
	}
	if r := n.pass(Containers, reclaim.Periodic); !exists(log) || len(n.removed()) > 0 {
		t.Errorf("its log is there: %v; removed %v; %+v", exists(log), n.removed(), r.Done)
	}
}

// heavy creates pods with more running containers than one answer holds: each sandbox is queried.
func heavy(n *node) {
	named := map[string]reclaim.Phase{uidB: reclaim.Active}
	for i := range 60 {
		uid, s := fmt.Sprintf("00000000-0000-0000-0000-%012d", i), fmt.Sprint("s", i)
		named[uid] = reclaim.Active
		n.sandbox(s, uid, true, time.Hour)
		n.container(fmt.Sprint("c", i), s, uid, running, time.Hour, "sha256:other")
		n.r.Containers[i].Annotations = map[string]string{"a": strings.Repeat("x", 300_000)}
	}
	n.known.Store(&Known{Pods: named, Synced: true})
	n.image("sha256:other", 10)
	n.image("sha256:cached", 10)
	n.seen()
}

// startPod adds a pod with its own sandbox and a container in the given state. The caller holds the
// fake runtime's lock.
func (n *node) startPod(image string, state runtimev1.ContainerState) {
	n.r.Sandboxes = append(n.r.Sandboxes, &runtimev1.PodSandbox{
		Id: "new", Metadata: &runtimev1.PodSandboxMetadata{Uid: uidB}, CreatedAt: n.clock.UnixNano(),
	})
	n.startsIn("new", image, state)
}

func (n *node) startsIn(sandbox, image string, state runtimev1.ContainerState) {
	n.r.Containers = append(n.r.Containers, &runtimev1.Container{
		Id: "cnew", PodSandboxId: sandbox, State: state, ImageId: image, Metadata: &runtimev1.ContainerMetadata{Name: "main"},
		Labels: map[string]string{uidLabel: uidB}, CreatedAt: n.clock.UnixNano(),
	})
}

// A pod that starts while the containers are listed sandbox by sandbox keeps its image.
func TestAPodThatStartsWhileContainersAreListed(t *testing.T) {
	for _, trigger := range []reclaim.Trigger{reclaim.Periodic, reclaim.DiskPressure} {
		n := newNode(t)
		heavy(n)
		n.other = 940
		images := false
		n.r.Answer["ListImages"] = func(m any) any { images = true; return m }
		n.r.Answer["ListContainers"] = func(m any) any {
			if images && len(n.r.Sandboxes) == 60 && len(m.(*runtimev1.ListContainersResponse).Containers) == 1 {
				n.startPod("sha256:cached", running)
			}
			return m
		}
		if r := n.pass(Images, trigger); len(n.r.Sandboxes) != 61 || len(n.removed()) > 0 {
			t.Errorf("%v: %d sandboxes, want 61; removed %v; %+v, %v", trigger, len(n.r.Sandboxes), n.removed(), r.Done, r.Problems())
		}
	}
}

// A pod that starts and crashes after the long list of all containers needs its image for its next start, whether it runs in a new sandbox or
// in an existing one.
func TestAPodThatCrashesAfterTheList(t *testing.T) {
	for _, sandbox := range []string{"new", "s"} {
		n := newNode(t)
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active, uidB: reclaim.Active}, Synced: true})
		n.sandbox("s", uidA, true, time.Hour)
		n.container("c", "s", uidA, running, time.Hour, "sha256:other")
		n.container("dead", "s", uidA, exited, time.Hour, "sha256:other")
		n.image("sha256:other", 10)
		n.image("sha256:1", 30)
		n.image("sha256:2", 20)
		n.seen()
		n.wait = 0
		n.r.Answer["ListContainers"] = func(m any) any {
			of := m.(*runtimev1.ListContainersResponse).Containers
			if slices.ContainsFunc(of, func(c *runtimev1.Container) bool { return c.Id == "c" }) && len(of) > 1 {
				n.clock = n.clock.Add(time.Minute)
			}
			return m
		}
		n.r.Answer["RemoveImage"] = func(m any) any {
			if len(n.r.Containers) > 2 {
				return m
			}
			if n.clock = n.clock.Add(3 * time.Second); sandbox == "new" {
				n.startPod("sha256:2", exited)
			} else {
				n.startsIn(sandbox, "sha256:2", exited)
			}
			return m
		}
		n.want(n.pass(Images, reclaim.DiskPressure), "image sha256:1")
	}
}

// Unlisted running containers in a sandbox that is not ready count as alive: the log of their pod stays, and so does a log that a dead
// container shares with them.
func TestRunningContainersThatAreNotTold(t *testing.T) {
	for _, logPath := range []string{"/log/pods/default_p-" + uidB + "_" + uidB + "/main/0.log", "/log/pods/app/main/0.log"} {
		n := newNode(t)
		log := n.file(logPath)
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted, uidB: reclaim.Evicted}, Synced: true})
		n.sandbox("large", uidB, false, time.Hour)
		for i := range 60 {
			n.container(fmt.Sprint("c", i), "large", uidB, running, time.Hour, "")
			n.r.Containers[i].Annotations = map[string]string{"a": strings.Repeat("x", 300_000)}
		}
		n.sandbox("s", uidA, false, time.Hour)
		n.container("dead", "s", uidA, exited, time.Hour, "")
		n.r.ContainerStatuses["dead"] = &runtimev1.ContainerStatus{Id: "dead", State: exited, LogPath: logPath}
		if strings.Contains(logPath, uidB) {
			delete(n.r.ContainerStatuses, "dead")
		}
		r := n.pass(Containers, reclaim.DiskPressure)
		if !exists(log) || !slices.Equal(n.removed(), []string{"container dead", "sandbox s"}) {
			t.Errorf("%s exists %v, removed %v, problems %v, steps %+v, want the log and two removals", logPath, exists(log), n.removed(), r.Problems(), r.Done)
		}
	}
}

// If neither all sandboxes nor the exited containers are listed, a pod between two starts may need any image: images stay as long as for a
// container with unknown volumes.
func TestExitedContainersThatAreNotTold(t *testing.T) {
	n := full(t)
	named := map[string]reclaim.Phase{uidB: reclaim.Active}
	n.sandbox("s", uidB, false, time.Hour)
	n.container("c", "s", uidB, exited, time.Hour, "sha256:1")
	for i := range 70 {
		uid, s := fmt.Sprintf("00000000-0000-0000-0000-%012d", i), fmt.Sprint("o", i)
		named[uid] = reclaim.Active
		n.sandbox(s, uid, false, time.Hour)
		n.container("c"+s, s, uid, exited, time.Hour, "sha256:1")
		n.r.Containers[i].Annotations = map[string]string{"a": strings.Repeat("x", 300_000)}
	}
	annotated(n.r.Sandboxes[1:])
	n.known.Store(&Known{Pods: named, Synced: true})
	if r := n.pass(Everything, reclaim.DiskPressure); r.ImagesErr == nil || len(n.removed()) > 0 {
		t.Errorf("removed %v, images %v, problems %v, want no removal", n.removed(), r.ImagesErr, r.Problems())
	}
	n.sleep(maxUnanswered + time.Second)
	if r := n.pass(Everything, reclaim.DiskPressure); r.ImagesErr != nil || len(n.removed()) == 0 {
		t.Errorf("images %v, problems %v, want removals after the limit", r.ImagesErr, r.Problems())
	}
}
