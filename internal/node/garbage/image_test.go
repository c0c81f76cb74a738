package garbage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/eviction"
	"jettison/reclaim"
	"jettison/stats"
)

// full returns a node with a disk that is 95 % full. Removal begins at 85 % and stops at 80 %: 150
// bytes must be freed.
func full(t *testing.T) *node {
	n := newNode(t)
	for _, id := range []string{"1", "2", "3", "4"} {
		n.image("sha256:"+id, 100)
	}
	n.other = 550
	n.seen()
	return n
}

// The space that an image frees is measured: the runtime's sizes are only predictions.
func TestTheLowMarkIsMeasured(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes uint64 // bytes that each image uses
		want  []string
		short bool
	}{
		{"as the sizes say", 100, []string{"image sha256:1", "image sha256:2"}, false},
		{"more than the sizes say", 200, []string{"image sha256:1"}, false},
		{"less, for layers are shared", 50, []string{"image sha256:1", "image sha256:2", "image sha256:3"}, false},
		{"next to nothing", 1, []string{"image sha256:1", "image sha256:2", "image sha256:3", "image sha256:4"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := full(t)
			n.other = 950 - 4*c.takes
			for _, i := range n.r.Images {
				n.takes[i.Id] = c.takes
			}
			r := n.pass(Everything, reclaim.Periodic)
			n.want(r, c.want...)
			if short := strings.HasPrefix(r.Plan.Short, "Insufficient free disk space on the node's image filesystem (95% of 1000 B used)"); short != c.short {
				t.Errorf("shortage of the plan = %q, want one: %v", r.Plan.Short, c.short)
			}
			freed := c.takes * uint64(len(c.want))
			if r.Freed() != stats.Some(freed) || r.Predicted() != 100*uint64(len(c.want)) || r.Done[0].Freed != stats.Some(c.takes) {
				t.Errorf("freed %+v, predicted %d, first step freed %+v, want %d in total", r.Freed(), r.Predicted(), r.Done[0].Freed, freed)
			}
		})
	}
}

// An image that cannot be removed does not block the others, and is retried after its backoff only.
func TestAnImageThatCannotBeRemoved(t *testing.T) {
	n := full(t)
	n.r.Fail["RemoveImage"] = errors.New("no")
	n.r.Answer["Version"] = func(m any) any { delete(n.r.Fail, "RemoveImage"); return m } // called after each failure
	n.want(n.pass(Images, reclaim.Periodic), "image sha256:2", "image sha256:3")
	n.other += 200
	if d := outcome(t, n.pass(Images, reclaim.Periodic), "sha256:1"); d.Outcome != Skipped || !strings.Contains(d.Why, "failed 1 times") {
		t.Errorf("outcome of the failed image = %+v, want skipped by the backoff", d)
	}
}

// Images in use in addition to those of containers: image volumes, also of stopped containers, and
// the images of sandboxes, from their status and from the runtime's configuration.
func TestImagesInUse(t *testing.T) {
	n := full(t)
	n.other = 999 // every image must be removed
	n.sandbox("s", uidA, true, time.Hour)
	n.r.Info["s"] = `{"image": "sha256:2:1"}`
	n.r.Config = `{"sandboxImage": "sha256:3:1"}`
	n.container("c", "s", uidA, exited, time.Hour, "sha256:9")
	n.r.ContainerStatuses["c"] = &runtimev1.ContainerStatus{Id: "c", State: exited, Mounts: []*runtimev1.Mount{{Image: &runtimev1.ImageSpec{Image: "sha256:1"}}}}
	n.want(n.pass(Images, reclaim.Periodic), "image sha256:4")
	asked := n.r.Calls("ContainerStatus")
	n.pass(Images, reclaim.Periodic)
	if n.r.Calls("ContainerStatus") != asked || n.r.Calls("PodSandboxStatus") != 1 {
		t.Error("containers and sandboxes are asked again")
	}
	if r := n.records["sha256:1"]; !r.LastUsed.Equal(n.clock) {
		t.Errorf("a volume is no use: %+v", r)
	}
	n.r.Change(func() {
		n.r.Config = `{"pinnedImages": {"sandbox": "sha256:2:1"}}`
		n.r.Sandboxes, n.r.Containers = nil, nil
	})
	n.sleep(time.Hour)
	n.want(n.pass(Images, reclaim.Periodic), "image sha256:4", "image sha256:1", "image sha256:3")
}

// On a node with more containers than one answer can hold, a full list costs a call for each
// sandbox. Each image then costs only a few calls: live objects are listed again before each
// removal, and a container started after the plan protects its image.
func TestImagesOfANodeWithManyDeadContainers(t *testing.T) {
	n := newNode(t)
	n.now, n.clock = time.Now, time.Now()
	const pods, images = 300, 20
	named := map[string]reclaim.Phase{}
	for i := range pods {
		uid, s := fmt.Sprintf("00000000-0000-0000-0000-%012d", i), fmt.Sprint("s", i)
		named[uid] = reclaim.Active
		n.sandbox(s, uid, false, time.Hour)
		n.container(fmt.Sprint("c", i), s, uid, exited, time.Hour, "sha256:dead")
		n.r.Containers[i].Annotations = map[string]string{"a": strings.Repeat("x", 60_000)}
	}
	n.known.Store(&Known{Pods: named, Synced: true})
	n.image("sha256:dead", 10)
	for i := range images {
		n.image(fmt.Sprint("sha256:", i), 10)
	}
	n.seen()
	n.r.Answer["RemoveImage"] = func(m any) any { // runs with the fake runtime's lock held
		if len(n.r.Removed) == 3 {
			n.r.Containers = append(n.r.Containers, &runtimev1.Container{Id: "new", PodSandboxId: "s0", State: running, ImageId: "sha256:9"})
		}
		return m
	}
	r := n.pass(Images, reclaim.DiskPressure)
	if r.Count(Removed) != images-1 || outcome(t, r, "sha256:9").Outcome != Skipped {
		t.Errorf("images removed = %d, %v, outcome of image 9 = %+v, want all others removed", r.Count(Removed), r.Err, outcome(t, r, "sha256:9"))
	}
	if calls := n.r.Calls("ListContainers"); calls > images*pods/2 {
		t.Errorf("ListContainers calls = %d for %d images, want at most %d", calls, images, images*pods/2)
	}
}

// An image that a container uses as a volume stays, regardless of the number of other mounts.
func TestAnImageVolumeAmongManyMounts(t *testing.T) {
	for _, mounts := range []int{999, 1000, 30_000} {
		n := full(t)
		n.container("c", "s", uidA, running, time.Hour, "sha256:1")
		s := &runtimev1.ContainerStatus{Id: "c", State: running}
		for i := range mounts {
			s.Mounts = append(s.Mounts, &runtimev1.Mount{ContainerPath: fmt.Sprint("/m", i), HostPath: "/x"})
		}
		s.Mounts = append(s.Mounts, &runtimev1.Mount{ContainerPath: "/model", Image: &runtimev1.ImageSpec{Image: "sha256:2"}})
		n.r.ContainerStatuses["c"] = s
		n.want(n.pass(Images, reclaim.DiskPressure), "image sha256:3", "image sha256:4")
	}
}

// A container that does not report its volumes protects all images if it may run, and none if it
// has exited (weakness 17).
func TestAContainerThatDoesNotTell(t *testing.T) {
	for _, state := range []runtimev1.ContainerState{running, exited} {
		n := full(t)
		n.container("c", "s", uidA, state, time.Hour, "sha256:1")
		n.r.Fail["ContainerStatus"] = errors.New("no")
		r := n.pass(Images, reclaim.Periodic)
		if state == running {
			if r.Err == nil || len(n.removed()) > 0 {
				t.Errorf("%v: error %v, removed %v, want an error and no removal", state, r.Err, n.removed())
			}
			continue
		}
		n.want(r, "image sha256:2", "image sha256:3")
		if len(r.Warnings) != 1 {
			t.Errorf("%v: problems = %q, want one", state, r.Warnings)
		}
	}
}

// A container that never reports its volumes protects all images for a limited time only, whether its status fails, times out, or was made
// too large by a tenant. Otherwise one container could disable image collection, and pods would be evicted instead.
func TestAContainerThatNeverTells(t *testing.T) {
	for _, how := range []string{"fails", "hangs", "is too large", "is one of too many"} {
		n := full(t)
		n.sandbox("s", uidA, true, time.Hour)
		n.container("c", "s", uidA, running, time.Hour, "sha256:1")
		switch how {
		case "fails":
			n.r.Fail["ContainerStatus"] = errors.New("no")
		case "hangs":
			n.r.Fail["ContainerStatus"] = status.Error(codes.DeadlineExceeded, "no answer")
		case "is too large":
			n.r.ContainerStatuses["c"] = &runtimev1.ContainerStatus{Id: "c", State: running, Message: strings.Repeat("m", 17<<20)}
		default:
			n.r.Containers[0].Annotations = map[string]string{"a": strings.Repeat("x", 17<<20)}
		}
		for range 3 {
			if r := n.pass(Images, reclaim.DiskPressure); r.Err == nil || len(n.removed()) > 0 {
				t.Errorf("%s: removed %v early with error %v, want an error and no removal", how, n.removed(), r.Err)
			}
			n.sleep(5*time.Minute - time.Second)
		}
		if how == "hangs" && n.r.Calls("ContainerStatus") != 1 {
			t.Errorf("%s: asked %d times, each costs its deadline", how, n.r.Calls("ContainerStatus"))
		}
		n.sleep(time.Minute)
		r := n.pass(Images, reclaim.DiskPressure)
		if n.want(r, n.removed()...); len(n.removed()) < 3 || !slices.ContainsFunc(r.Warnings, func(odd string) bool { return strings.Contains(odd, "unknown for 15m0s") }) {
			t.Errorf("%s: removed %v, problems %q, want the images removed and a problem", how, n.removed(), r.Warnings)
		}
	}
}

// Image volumes are found in a status that a tenant has made megabytes large with mounts.
func TestAStatusOfManyMounts(t *testing.T) {
	n := full(t)
	n.container("c", "s", uidA, running, time.Hour, "sha256:1")
	s := &runtimev1.ContainerStatus{Id: "c", State: running}
	for i := range 30_000 {
		s.Mounts = append(s.Mounts, &runtimev1.Mount{ContainerPath: fmt.Sprint("/m", i), HostPath: "/var/lib/kubelet/pods/" + strings.Repeat("s", 140)})
	}
	s.Mounts = append(s.Mounts, &runtimev1.Mount{ContainerPath: "/model", Image: &runtimev1.ImageSpec{Image: "sha256:2"}})
	n.r.ContainerStatuses["c"] = s
	n.want(n.pass(Images, reclaim.DiskPressure), "image sha256:3", "image sha256:4")
}

// With any number of hanging containers, a round of status calls costs at most maxTimeouts
// timeouts, and later rounds call the others.
func TestContainersThatHangAreAskedAFewAtATime(t *testing.T) {
	n := full(t)
	for i := range 7 {
		n.container(fmt.Sprint("c", i), "s", uidA, running, time.Hour, "sha256:1")
	}
	n.container("dead", "s", uidA, exited, time.Hour, "sha256:1")
	n.r.Fail["ContainerStatus"] = status.Error(codes.DeadlineExceeded, "no answer")
	for i, want := range []int{maxTimeouts, 2 * maxTimeouts, 8, 8} {
		if r := n.pass(Images, reclaim.DiskPressure); r.Err == nil || n.r.Calls("ContainerStatus") != want {
			t.Errorf("round %d: %d questions so far, want %d: %v", i, n.r.Calls("ContainerStatus"), want, r.Err)
		}
		n.sleep(time.Minute)
	}
	delete(n.r.Fail, "ContainerStatus")
	n.r.ContainerStatuses["c6"] = &runtimev1.ContainerStatus{Id: "c6", Mounts: []*runtimev1.Mount{{Image: &runtimev1.ImageSpec{Image: "sha256:2"}}}}
	n.sleep(maxUnanswered)
	n.want(n.pass(Images, reclaim.DiskPressure), "image sha256:3", "image sha256:4")
}

// Unreadable images block no other removal, in particular under disk pressure, and no image record
// is lost.
func TestContainersGoWhereImagesCannotBeSeen(t *testing.T) {
	for name, breaks := range map[string]func(*node){
		"no list":                        func(n *node) { n.r.Fail["ListImages"] = errors.New("no") },
		"no configuration":               func(n *node) { n.r.Fail["Status"] = errors.New("no") },
		"a container that tells nothing": func(n *node) { n.container("hung", "s-b", uidB, running, time.Hour, "") },
	} {
		n := full(t)
		n.pass(Images, reclaim.Periodic)
		before := n.records
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted, uidB: reclaim.Active}, Synced: true})
		n.sandbox("s", uidA, false, time.Hour)
		n.container("c", "s", uidA, exited, time.Hour, "")
		breaks(n)
		n.r.Answer["ContainerStatus"] = func(m any) any {
			if out := m.(*runtimev1.ContainerStatusResponse); out.Status.Id == "hung" {
				out.Status = nil
			}
			return m
		}
		n.r.Change(func() { n.r.Removed = nil })
		r := n.Relieve(t.Context(), []eviction.ReclaimRequest{wish(eviction.ReclaimContainers, stats.SignalNodeFsAvailable), wish(eviction.ReclaimImages, stats.SignalImageFsAvailable)})
		n.want(r, "container c", "sandbox s")
		if r.Err != nil || r.ImagesErr == nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "no image is removed, reading the images failed: ") {
			t.Errorf("%s: error %v, images %v, problems %q, want only a problem about the images", name, r.Err, r.ImagesErr, r.Warnings)
		}
		if len(n.records) != len(before) || len(before) == 0 {
			t.Errorf("%s: %d images are remembered, of %d", name, len(n.records), len(before))
		}
	}
}

// Disk pressure waits for a sandbox without a container, but only for a limited time.
func TestDiskPressureWaitsForAWhile(t *testing.T) {
	n := full(t)
	n.now, n.wait = time.Now, 50*time.Millisecond
	n.sandbox("s", uidA, true, 0)
	began := time.Now()
	r := n.pass(Images, reclaim.DiskPressure)
	if took := time.Since(began); took < 50*time.Millisecond || r.Count(Removed) != 4 {
		t.Errorf("pass took %v, steps %+v, want a wait and 4 removals", took, r.Done)
	}

	n = full(t)
	n.now, n.wait = time.Now, time.Minute
	n.sandbox("s", uidA, true, 0)
	asked := 0
	n.r.Answer["ListContainers"] = func(m any) any {
		if asked++; asked == 2 { // meanwhile the sandbox gets its container, with an image that would be removed
			n.r.Containers = append(n.r.Containers, &runtimev1.Container{Id: "c", PodSandboxId: "s", State: running, ImageId: "sha256:3"})
		}
		return m
	}
	r = n.pass(Images, reclaim.DiskPressure)
	if r.Count(Removed) != 3 || outcome(t, r, "sha256:3").Outcome != Skipped {
		t.Errorf("steps = %+v, want 3 removals and image 3 skipped", r.Done)
	}
}

// Disk pressure waits for any number of successive young sandboxes no longer than for one.
func TestDiskPressureWaitsOnceForManySandboxes(t *testing.T) {
	n := full(t)
	n.now, n.wait = time.Now, 400*time.Millisecond
	n.sandbox("s0", uidA, true, 0)
	asked := 0
	n.r.Answer["ListContainers"] = func(m any) any { // each third list contains its container
		out := m.(*runtimev1.ListContainersResponse)
		if asked++; asked%3 != 0 {
			return out
		}
		out.Containers = append(out.Containers, &runtimev1.Container{Id: "c", PodSandboxId: "s0", State: running})
		return out
	}
	r := n.pass(Images, reclaim.DiskPressure)
	// One look for the plan, one for each image, and one more after each of two waits.
	if asked > 7 || r.Count(Removed) != 4 {
		t.Errorf("%d lists, steps %+v, want at most 7 lists and 4 removals", asked, r.Done)
	}
}

// Young sandboxes postpone the periodic passes for images for a limited time. If new ones keep
// appearing, images are removed in the end, after a wait as under disk pressure.
func TestYoungSandboxesDoNotStopImagesForEver(t *testing.T) {
	for what, meanwhile := range map[string]bool{"seen by the plan": false, "made in between": true} {
		n := full(t)
		n.wait = 10 * time.Millisecond
		n.sandbox("s", uidA, !meanwhile, 0)
		asked := 0
		n.r.Answer["ListPodSandbox"] = func(m any) any { // each list contains a new sandbox
			out := m.(*runtimev1.ListPodSandboxResponse)
			for _, s := range out.Items {
				if s.Metadata.Uid == uidA {
					s.Id, s.CreatedAt = fmt.Sprint("s-", n.clock.Unix()), n.clock.UnixNano()
					if asked++; meanwhile && asked > 1 {
						s.State = runtimev1.PodSandboxState_SANDBOX_READY
					}
				}
			}
			return out
		}
		began := n.clock
		for len(n.removed()) == 0 && n.clock.Sub(began) < time.Hour {
			asked = 0
			r := n.pass(Images, reclaim.Periodic)
			if early := n.clock.Sub(began) < reclaim.MaxPostponed; early && len(n.removed()) > 0 {
				t.Errorf("%s: removed after %v, want a wait: %+v", what, n.clock.Sub(began), r.Done)
			}
			n.sleep(5 * time.Minute)
		}
		if took := n.clock.Sub(began); took > reclaim.MaxPostponed+10*time.Minute {
			t.Errorf("%s: no image removed for %v, want a removal earlier", what, took)
		}
		n.other += 400 // full again: another wait
		before := len(n.removed())
		asked = 0
		if n.pass(Images, reclaim.Periodic); len(n.removed()) > before {
			t.Errorf("%s: the next pass does not wait", what)
		}
	}
}

func wish(what eviction.Reclaimable, signals ...stats.Signal) eviction.ReclaimRequest {
	return eviction.ReclaimRequest{What: what, Signals: signals}
}

// Under disk pressure the collector removes the garbage that frees the most bytes in the least
// time, on the disk that is short.
func TestRelief(t *testing.T) {
	build := func(t *testing.T) *node {
		n := full(t)
		n.r.Images[2].Size, n.takes["sha256:3"] = 250<<20, 250
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		n.sandbox("s", uidA, false, time.Hour)
		n.container("c", "s", uidA, exited, time.Hour, "")
		n.file("log/pods/default_a_" + uidA + "/main/0.log")
		n.imageDir = "/images" // as reported to an earlier pass
		return n
	}
	both := []eviction.ReclaimRequest{wish(eviction.ReclaimContainers, stats.SignalImageFsAvailable), wish(eviction.ReclaimImages, stats.SignalImageFsAvailable)}
	t.Run("order", func(t *testing.T) {
		n := build(t)
		r := n.Relieve(t.Context(), both)
		n.want(r, "image sha256:3", "image sha256:1", "image sha256:2", "image sha256:4", "container c", "sandbox s")
		if slices.ContainsFunc(r.Done, func(d Done) bool { return d.Action == reclaim.RemoveLogs }) {
			t.Error("logs lie on another disk")
		}
	})
	t.Run("the other disk", func(t *testing.T) {
		n := build(t)
		r := n.Relieve(t.Context(), []eviction.ReclaimRequest{wish(eviction.ReclaimContainers, stats.SignalNodeFsAvailable), wish(eviction.ReclaimImages, stats.SignalNodeFsAvailable)})
		n.want(r, "container c", "sandbox s")
		outcome(t, r, "default_a_"+uidA)
	})
	t.Run("a kind alone", func(t *testing.T) {
		n := build(t)
		n.want(n.Relieve(t.Context(), both[:1]), "container c", "sandbox s")
	})
}
