package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"jettison/reclaim"
)

// world fills a node with random objects that mostly refer to each other.
func (n *node) world(t *rapid.T) {
	pick := func(of ...int) int { return rapid.SampledFrom(of).Draw(t, "") }
	count := func(most int) int { return rapid.IntRange(0, most).Draw(t, "n") }
	age := func() time.Duration { return time.Duration(count(20)) * time.Minute }
	uid := func() string { return []string{uidA, uidB, "00000000-0000-0000-0000-00000000000c"}[count(2)] }
	n.r.Change(func() { n.r.Sandboxes, n.r.Containers, n.r.Images, n.r.Removed = nil, nil, nil, nil })
	owner := map[string]string{}
	for i := range count(5) {
		id := fmt.Sprint("s", i)
		owner[id] = uid()
		n.sandbox(id, owner[id], pick(0, 0, 1) == 1, age())
	}
	states := []runtimev1.ContainerState{created, running, exited, unknown}
	for i := range count(10) {
		s := fmt.Sprint("s", count(4))
		if owner[s] == "" {
			continue
		}
		n.container(fmt.Sprint("c", i), s, owner[s], states[pick(0, 1, 2, 2, 2, 3)], age(), fmt.Sprint("sha256:", count(6)))
	}
	for i := range count(6) {
		image := n.image(fmt.Sprint("sha256:", i), uint64(count(200)))
		image.Pinned = pick(0, 0, 0, 1) == 1
		n.takes[image.Id] = uint64(count(200))
	}
	n.other = uint64(count(1000))
	n.seen()
	known := Known{Pods: map[string]reclaim.Phase{}, Synced: pick(0, 1, 1, 1) == 1}
	for range count(3) {
		known.Pods[uid()] = []reclaim.Phase{reclaim.Active, reclaim.Terminated, reclaim.Evicted, reclaim.Gone}[count(3)]
	}
	n.known.Store(&known)
}

// With any objects and any failing call, a pass never removes objects that run, are in use, or are
// pinned. After a pass without failures only images may be left to remove.
func TestInvariantsOfExecution(t *testing.T) {
	n := newNode(t)
	n.open(func(o *Options) { o.PodGoneAfter, o.StateDir = 0, "" })
	n.wait = 0
	rapid.Check(t, func(t *rapid.T) {
		n.world(t)
		n.backoff, n.volumes, n.sandboxImages, n.quiet = nil, answers[[]string]{}, answers[string]{}, newQuiet()
		trigger := []reclaim.Trigger{reclaim.Periodic, reclaim.DiskPressure}[rapid.IntRange(0, 1).Draw(t, "trigger")]
		failing := rapid.SampledFrom([]string{"", "", "RemoveContainer", "StopContainer", "StopPodSandbox", "RemovePodSandbox", "RemoveImage", "ContainerStatus", "ImageStatus"}).Draw(t, "fails")
		var protected []string
		n.r.Change(func() {
			clear(n.r.Fail)
			if failing != "" {
				n.r.Fail[failing] = errors.New("no")
			}
			for _, c := range n.r.Containers {
				if c.State == running {
					protected = append(protected, "container "+c.Id)
				}
				protected = append(protected, "image "+c.ImageId)
			}
			for _, s := range n.r.Sandboxes {
				if s.State == runtimev1.PodSandboxState_SANDBOX_READY {
					protected = append(protected, "sandbox "+s.Id)
				}
			}
			for _, i := range n.r.Images {
				if i.Pinned {
					protected = append(protected, "image "+i.Id)
				}
			}
		})
		before := proto.CloneOf(&runtimev1.ListContainersResponse{Containers: n.r.Containers})
		r := n.Pass(context.Background(), Everything, trigger)
		for _, what := range n.removed() {
			if slices.Contains(protected, what) {
				t.Fatalf("removed protected object %s of node %v", what, before)
			}
		}
		for _, d := range r.Done {
			if d.Outcome == Removed && failing != "" && strings.HasPrefix(failing, "Remove") && strings.EqualFold(failing, strings.ReplaceAll(d.Action.String(), " ", "")) {
				t.Fatalf("%s fails, and it calls %s removed", failing, d.ID)
			}
		}
		if failing != "" {
			return
		}
		if r.Err != nil || r.Count(Failed) > 0 {
			t.Fatalf("pass = %v, steps %+v, want no failures", r.Err, r.Done)
		}
		again := n.Pass(context.Background(), Everything, trigger)
		for _, s := range again.Plan.Steps {
			if s.Action != reclaim.RemoveImage { // images of containers that were just removed may follow
				t.Fatalf("after a pass: %+v; it was %+v", again.Plan.Steps, r.Done)
			}
		}
		if third := n.Pass(context.Background(), Everything, trigger); third.Count(Removed) > 0 {
			t.Fatalf("a third pass removes %+v", third.Done)
		}
	})
}
