package garbage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/reclaim"
)

var errLate = status.Error(codes.DeadlineExceeded, "no answer")

// addHanging adds containers with status calls that time out.
func (n *node) addHanging(many int) {
	n.r.FailOn = map[string]error{}
	for i := range many {
		id := fmt.Sprint("c", i)
		n.container(id, "s", uidA, running, time.Hour, "sha256:1")
		n.r.FailOn[id] = errLate
	}
}

// With any number of hanging containers, images are removed once volumes are unknown for maxUnanswered, even if some were not queried yet.
func TestHoweverManyContainersHangImagesGo(t *testing.T) {
	for _, many := range []int{1, 9, 12, 100} {
		n := full(t)
		n.addHanging(many)
		for began := n.clock; len(n.removed()) == 0; n.sleep(5 * time.Minute) {
			before, late := n.r.Calls("ContainerStatus"), n.clock.Sub(began)
			r := n.pass(Images, reclaim.DiskPressure)
			if early := late < maxUnanswered; early != (len(n.removed()) == 0) || early != (r.Err != nil) {
				t.Errorf("%d hanging containers after %v: removed %v, %v, want removals only after %v", many, late, n.removed(), r.Err, maxUnanswered)
			} else if asked := n.r.Calls("ContainerStatus") - before; early && asked > maxTimeouts {
				t.Errorf("%d hang: %d were asked in a round", many, asked)
			}
			if late > time.Hour {
				t.Fatalf("%d hang: no image goes", many)
			}
		}
	}
}

// A container or sandbox that answers is queried, regardless of the number of hanging ones, because
// hanging ones are queried again only after all others.
func TestOneThatAnswersAmongManyThatHang(t *testing.T) {
	const hang = 20
	n := full(t)
	n.addHanging(hang)
	n.container("answers", "s", uidA, running, time.Hour, "sha256:1")
	volume := &runtimev1.Mount{Image: &runtimev1.ImageSpec{Image: "sha256:2"}}
	n.r.ContainerStatuses["answers"] = &runtimev1.ContainerStatus{Id: "answers", State: running, Mounts: []*runtimev1.Mount{volume}}
	for i := range hang {
		id := fmt.Sprint("s", i)
		n.sandbox(id, uidB, false, time.Hour)
		n.r.FailOn[id] = errLate
	}
	n.sandbox("s", uidA, true, time.Hour)
	n.r.Info["s"] = `{"image": "sha256:3:1"}`
	n.other = 0                         // no image is removed during the rounds
	const rounds = hang/maxTimeouts + 1 // the first ones query no sandbox, because no image may be removed
	for range rounds + int(maxUnanswered/(5*time.Minute)) {
		before := n.r.Calls("ContainerStatus") + n.r.Calls("PodSandboxStatus")
		n.pass(Images, reclaim.Periodic)
		if asked := n.r.Calls("ContainerStatus") + n.r.Calls("PodSandboxStatus") - before; asked > 2*maxTimeouts+2 {
			t.Errorf("%d were asked in a round", asked)
		}
		n.sleep(5 * time.Minute)
	}
	n.other = 550
	n.want(n.pass(Images, reclaim.DiskPressure), "image sha256:4")
}

// A container that does not report its volumes causes no further call for the other containers.
func TestWhoHasToldIsNotAskedAgain(t *testing.T) {
	n := full(t)
	const dead = 50
	for i := range dead {
		n.container(fmt.Sprint("d", i), "s", uidA, exited, time.Hour, "sha256:1")
	}
	n.container("mute", "s", uidA, running, time.Hour, "sha256:1")
	n.r.ContainerStatuses["mute"] = &runtimev1.ContainerStatus{Id: "mute", State: running, Message: strings.Repeat("m", 17<<20)}
	for i := range 4 {
		if r := n.pass(Images, reclaim.DiskPressure); r.Err == nil {
			t.Error("images go at once")
		}
		if asked := n.r.Calls("ContainerStatus"); asked != dead+1+i {
			t.Errorf("pass %d: %d were asked so far, want %d", i, asked, dead+1+i)
		}
		n.sleep(time.Minute)
	}
}

// A look that is canceled for a new one keeps its answers. Otherwise a node with many dead
// containers would never complete a look.
func TestALookThatEndsEarlyHasAskedForTheNext(t *testing.T) {
	n := full(t)
	const dead, end = 50, 30
	for i := range dead {
		n.container(fmt.Sprint("d", i), "s", uidA, exited, time.Hour, "sha256:1")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	n.r.Answer["ContainerStatus"] = func(m any) any {
		if asked++; asked == end {
			cancel()
		}
		return m
	}
	if r := n.Pass(ctx, Images, reclaim.DiskPressure); r.Err == nil {
		t.Error("it has not ended")
	}
	n.want(n.pass(Images, reclaim.DiskPressure), "image sha256:2", "image sha256:3", "image sha256:4")
	if got := n.r.Calls("ContainerStatus"); got > dead+1 { // the answer to the call in flight at the cancellation may be lost
		t.Errorf("%d were asked, want %d", got, dead+1)
	}
}
