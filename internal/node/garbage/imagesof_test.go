package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// Containers that hang and are renewed all the time block the removal of images for a limited time.
func TestHangingContainersAreRenewed(t *testing.T) {
	n := full(t)
	for i := 0; len(n.removed()) == 0; i++ {
		if late := time.Duration(i) * 5 * time.Minute; late > maxBlocked {
			t.Fatalf("no image is removed after %v", late)
		}
		n.r.Change(func() {
			n.r.Containers = slices.DeleteFunc(n.r.Containers, func(c *runtimev1.Container) bool { return strings.HasPrefix(c.Id, "hangs") })
			n.r.FailOn = map[string]error{fmt.Sprint("hangs", i): errLate}
		})
		n.container(fmt.Sprint("hangs", i), "s", uidA, running, time.Hour, "sha256:1")
		n.pass(Images, reclaim.DiskPressure)
		n.sleep(5 * time.Minute)
	}
}

// A container that always hangs takes no time from another tenant's, whose volume is unknown for a moment.
func TestHangingContainerTakesNoTimeFromOthers(t *testing.T) {
	n := full(t)
	n.other = 0
	n.addHanging(1)
	for range 5 {
		n.pass(Images, reclaim.Periodic)
		n.sleep(5 * time.Minute)
	}
	n.container("new", "s", uidA, running, time.Second, "sha256:1")
	n.r.ContainerStatuses["new"] = &runtimev1.ContainerStatus{Id: "new", State: running, Mounts: []*runtimev1.Mount{{Image: &runtimev1.ImageSpec{Image: "sha256:2"}}}}
	n.r.Change(func() { n.r.FailOn["new"] = errors.New("not yet") })
	n.other = 550
	if r := n.pass(Images, reclaim.DiskPressure); r.Err == nil || len(n.removed()) > 0 {
		t.Errorf("error %v, removed %v, want no removal while the volume is unknown", r.Err, n.removed())
	}
	n.r.Change(func() { delete(n.r.FailOn, "new") })
	n.want(n.pass(Images, reclaim.DiskPressure), "image sha256:3", "image sha256:4")
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

// A tag moved to another image, and the runtime no longer lists the digest of the first: a container still runs from it.
func TestImageOfAMovedTagIsInUse(t *testing.T) {
	digest := "shop/app@sha256:" + strings.Repeat("d", 64)
	for _, answer := range []string{"known", "unknown", "none", "none for an exited one", "none for long"} {
		n := full(t)
		state := running
		if answer == "none for an exited one" {
			state = exited
		}
		n.container("c", "s", uidA, state, time.Hour, "")
		n.r.Change(func() {
			c := n.r.Containers[len(n.r.Containers)-1]
			c.ImageRef, c.Image = digest, &runtimev1.ImageSpec{Image: "sha256:4:1"} // the tag, now of another image
			n.r.Unlisted = map[string]string{}
			n.r.Images[2].RepoTags, n.r.Images[2].RepoDigests = nil, nil
			if answer == "known" {
				n.r.Unlisted[digest] = "sha256:3"
			}
			if strings.HasPrefix(answer, "none") {
				n.r.FailOn = map[string]error{digest: errLate}
			}
		})
		r := n.pass(Images, reclaim.DiskPressure)
		if answer == "none for long" {
			n.sleep(maxUnanswered)
			r = n.pass(Images, reclaim.DiskPressure)
		}
		switch answer {
		case "known": // in use: 4 by its tag, 3 by the unlisted digest
			n.want(r, "image sha256:1", "image sha256:2")
		case "unknown": // 3 has no names: it may be the one
			n.want(r, "image sha256:1", "image sha256:2")
		case "none for an exited one", "none for long":
			n.want(r, "image sha256:1", "image sha256:2", "image sha256:3")
		case "none":
			if r.Err == nil || len(n.removed()) > 0 {
				t.Errorf("a status call fails: error %v, removed %v, want an error and nothing removed", r.Err, n.removed())
			}
		}
	}
}

// runsUnlisted adds a container that runs from an image under a digest that no image lists.
func (n *node) runsUnlisted(i int) (digest string) {
	digest = fmt.Sprintf("shop/app%d@sha256:%064x", i, 5000+i)
	n.container(fmt.Sprint("c", i), "s", uidA, running, time.Hour, "")
	n.r.Change(func() {
		c := n.r.Containers[len(n.r.Containers)-1]
		c.ImageRef, c.Image = digest, &runtimev1.ImageSpec{Image: "sha256:4:1"}
	})
	return digest
}

// Each reference is looked up once, however many passes and removals follow.
func TestUnlistedImagesAreLookedUpOnce(t *testing.T) {
	const many = 30
	n := full(t)
	n.r.Unlisted = map[string]string{}
	for i := range many {
		n.r.Unlisted[n.runsUnlisted(i)] = "sha256:3"
	}
	for range 4 {
		n.pass(Images, reclaim.DiskPressure)
	}
	if got, removed := n.r.Calls("ImageStatus"), len(n.removed()); removed != 2 || got > many+removed {
		t.Errorf("ImageStatus was called %d times for %d references and %d removals", got, many, removed)
	}
}

// References that hang are looked up last, and at most three of them in a round: one that answers keeps
// its image.
func TestLookUpsThatHangStarveNoOther(t *testing.T) {
	n := full(t)
	n.r.Unlisted, n.r.FailOn = map[string]string{}, map[string]error{}
	for i := range maxTimeouts {
		n.r.FailOn[n.runsUnlisted(i)] = errLate
	}
	n.r.Unlisted[n.runsUnlisted(maxTimeouts)] = "sha256:3"
	for range 4 {
		before := n.r.Calls("ImageStatus")
		if r := n.pass(Images, reclaim.DiskPressure); r.Err != nil && !strings.Contains(r.Err.Error(), "no answer") {
			t.Errorf("error %v, want the cause", r.Err)
		}
		if got := n.r.Calls("ImageStatus") - before - len(n.removed()); got > maxTimeouts+1 {
			t.Errorf("%d look-ups in a pass", got)
		}
		n.sleep(maxUnanswered / 2)
	}
	n.want(n.pass(Images, reclaim.DiskPressure), "image sha256:1", "image sha256:2")
}

// Containers whose images are listed cost no call, neither in a look nor before a removal.
func TestListedImagesAreNotLookedUp(t *testing.T) {
	n := full(t)
	for i := range 200 {
		n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour, "sha256:1")
	}
	r := n.pass(Images, reclaim.DiskPressure)
	n.want(r, "image sha256:2", "image sha256:3", "image sha256:4")
	if got := n.r.Calls("ImageStatus"); got > 3 {
		t.Errorf("ImageStatus was called %d times, want 3, once before each removal", got)
	}
}
