package garbage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/reclaim"
)

// The clock is set while a container starts, on a node without a clock battery: by its creation
// time the container is 56 years old. Its age counts from its first sighting, and it is removed
// when it is old enough. In a single pass it is at most as old as the boot.
func TestTheClockIsSetWhileAContainerStarts(t *testing.T) {
	for _, once := range []bool{false, true} {
		n := newNode(t)
		n.open(func(o *Options) { o.Once = once })
		n.up = 30 * time.Second
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
		n.sandbox("s", uidA, true, 2*time.Second)
		n.container("old", "s0", uidA, exited, 24*time.Hour, "") // from the previous boot
		n.container("new", "s", uidA, created, 0, "")
		n.r.Containers[1].CreatedAt = time.Unix(28, 0).UnixNano()
		n.want(n.pass(Containers, reclaim.DiskPressure))
		n.clock = n.clock.AddDate(10, 0, 0) // set again
		n.want(n.pass(Containers, reclaim.DiskPressure))
		n.sleep(n.o.Policy.Container.CreatedMinAge)
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		n.r.Change(func() { n.r.Sandboxes = nil })
		n.want(n.pass(Containers, reclaim.DiskPressure), "container new", "container old")
	}
}

// Containers that ended before the clock was set back are dated in the future. They are removed after their minimum age from their first
// sighting; a single pass, without earlier sightings, removes them immediately.
func TestTheClockIsSetBackAfterContainersEnded(t *testing.T) {
	for _, once := range []bool{false, true} {
		n := newNode(t)
		const least = time.Minute
		n.open(func(o *Options) { o.Once, o.Policy.Container.MinAge = once, least })
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		n.container("c", "s", uidA, exited, -5*time.Hour, "")
		if !once {
			n.want(n.pass(Containers, reclaim.Periodic))
			n.sleep(least)
		}
		n.want(n.pass(Containers, reclaim.Periodic), "container c")
	}
}

// A single pass keeps a container that may be about to start and is dated in the future: its age is unknown.
func TestByHandOneOfTheFutureMayBeAboutToStart(t *testing.T) {
	n := newNode(t)
	n.open(func(o *Options) { o.Once = true })
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	n.container("c", "s", uidA, created, -time.Second, "")
	n.want(n.pass(Containers, reclaim.DiskPressure))
}

// When the clock has reached the creation time of a container from the future, the container does
// not count as new.
func TestTheClockComesSoFarAgain(t *testing.T) {
	n := newNode(t)
	n.open(func(o *Options) { o.Policy.Container.MinAge = time.Hour })
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	n.container("c", "s", uidA, exited, -45*time.Minute, "")
	n.want(n.pass(Containers, reclaim.Periodic))
	n.sleep(50 * time.Minute)
	n.want(n.pass(Containers, reclaim.Periodic))
	n.sleep(10 * time.Minute)
	n.want(n.pass(Containers, reclaim.Periodic), "container c")
}

// However the clock is set between two attempts and after them, the last dead container stays and
// the earlier ones are removed, even with creation times in the future. The same applies for an
// agent that saw the first attempt before the change, for one that starts afterwards, and for a
// single pass.
func TestTheLastAttemptStays(t *testing.T) {
	const year = 365 * 24 * time.Hour
	steps := []time.Duration{0, 5 * time.Hour, -5 * time.Hour, 3 * year, -3 * year}
	for _, how := range []string{"an agent that has seen the first", "an agent that starts", "by hand"} {
		for _, first := range []string{"s", "s-before"} { // the sandbox of the first attempt
			for _, between := range steps {
				for _, after := range steps {
					if first != "s" && between < 0 && between+after >= 0 {
						continue // no creation time is in the future any more: as in the kubelet
					}
					got := removedAttempts(t, how, first, between, after)
					if want := []string{"container c0", "container c1", "container c2", "container c3"}; !slices.Equal(got, want) {
						t.Errorf("%s, the first in %s, the clock set by %v, then by %v: removed %q", how, first, between, after, got)
					}
				}
			}
		}
	}
}

// removedAttempts returns the containers that are removed of five attempts. The clock is set after
// the first attempt by between, and after the last by after.
func removedAttempts(t *testing.T, how, first string, between, after time.Duration) []string {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
	n.open(func(o *Options) { o.Once = how == "by hand" })
	n.sandbox("s-before", uidA, false, time.Minute)
	n.sandbox("s", uidA, true, 0)
	for k, sandbox := range []string{first, "s", "s", "s", "s"} {
		n.container(fmt.Sprint("c", k), sandbox, uidA, exited, 0, "")
		n.r.Containers[k].Metadata.Attempt = uint32(k)
		n.sleep(time.Second)
		if k > 0 {
			continue
		}
		if how == "an agent that has seen the first" {
			n.pass(Containers, reclaim.Periodic)
		}
		n.clock = n.clock.Add(between)
	}
	n.clock = n.clock.Add(after)
	n.pass(Containers, reclaim.Periodic)
	got := slices.DeleteFunc(n.removed(), func(what string) bool { return strings.HasPrefix(what, "sandbox ") })
	slices.Sort(got)
	return got
}

// A client restarts its count of attempts in each sandbox: the dead containers of the previous
// sandbox are removed, not the latest ones.
func TestAttemptsThatBeginAnew(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
	n.sandbox("s-new", uidA, true, time.Hour)
	n.container("old", "s-old", uidA, exited, 100*time.Hour, "")
	n.r.Containers[0].Metadata.Attempt = 3
	var want []string
	for k, before := range []string{"old", "new-0", "new-1"} {
		n.container(fmt.Sprint("new-", k), "s-new", uidA, exited, time.Minute, "")
		want = append(want, "container "+before)
		n.want(n.pass(Containers, reclaim.Periodic), want...)
		n.sleep(time.Minute)
	}
}

// A sandbox whose creation the fresh look does not know stays: any other could be older.
func TestHasNewer(t *testing.T) {
	at := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		own, other time.Time // in the fresh look
		want       bool
	}{
		"a newer one":                   {at, at.Add(time.Minute), true},
		"an older one":                  {at, at.Add(-time.Minute), false},
		"own creation unknown":          {time.Time{}, at.Add(-time.Minute), false},
		"creation of the other unknown": {at, time.Time{}, false},
	} {
		look := &reclaim.Look{Sandboxes: []reclaim.Sandbox{{ID: "s", PodUID: uidA, CreatedAt: c.own}, {ID: "o", PodUID: uidA, CreatedAt: c.other}}}
		if got := hasNewer(look, &reclaim.Step{ID: "s", PodUID: uidA, Since: at}); got != c.want {
			t.Errorf("%s: hasNewer() = %v, want %v", name, got, c.want)
		}
	}
}

// A sandbox from before the clock was set back is removed if its pod has a newer one. The newest
// stays, even with a creation time in the future.
func TestTheClockIsSetBackAfterSandboxes(t *testing.T) {
	for name, ages := range map[string][2]time.Duration{
		"the first is of the future":  {-5 * time.Hour, time.Minute},
		"the second is of the future": {10 * time.Hour, -5 * time.Hour},
		"both are":                    {-5 * time.Hour, -6 * time.Hour},
	} {
		for _, once := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by hand %v", name, once), func(t *testing.T) {
				n := newNode(t)
				n.open(func(o *Options) { o.Once = once })
				n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
				n.uptime = func() time.Duration { n.up += time.Microsecond; return n.up } // this clock is read after the wall clock
				for k, age := range ages {
					n.sandbox(fmt.Sprint("s", k), uidA, false, age)
					n.r.Sandboxes[k].Metadata.Attempt = uint32(k)
				}
				n.want(n.pass(Containers, reclaim.Periodic), "sandbox s0")
			})
		}
	}
}

// However the clock is set while a sandbox has no container, image removals are postponed until one
// minute after the first sighting of the sandbox, by the plan or by a later list.
func TestTheClockIsSetWhileASandboxIsYoung(t *testing.T) {
	for name, age := range map[string]time.Duration{"as it was": time.Second, "set forward": 56 * 365 * 24 * time.Hour, "set back": -time.Hour} {
		for _, meanwhile := range []bool{false, true} {
			n := full(t)
			n.sandbox("s", uidA, !meanwhile, age)
			looks := 0
			n.r.Answer["ListPodSandbox"] = func(m any) any {
				if looks++; looks > 1 {
					m.(*runtimev1.ListPodSandboxResponse).Items[0].State = runtimev1.PodSandboxState_SANDBOX_READY
				}
				return m
			}
			if r := n.pass(Images, reclaim.Periodic); (r.Plan.Pulling != "s") != meanwhile || len(n.removed()) > 0 {
				t.Errorf("%s, made since the plan %v: put off for %q, removed %v", name, meanwhile, r.Plan.Pulling, n.removed())
			}
			n.sleep(59 * time.Second)
			n.want(n.pass(Images, reclaim.Periodic))
			n.sleep(time.Second)
			n.want(n.pass(Images, reclaim.Periodic), "image sha256:1", "image sha256:2")
		}
	}
}

// A single pass has no earlier sightings: a sandbox is at most as old as the boot, and one with a
// creation time in the future counts as new.
func TestByHandASandboxIsNoOlderThanTheBoot(t *testing.T) {
	for name, age := range map[string]time.Duration{"set forward": 56 * 365 * 24 * time.Hour, "set back": -time.Hour} {
		n := full(t)
		n.open(func(o *Options) { o.Once = true })
		n.up, n.wait = 30*time.Second, time.Minute
		n.seen()
		n.sandbox("s", uidA, true, age)
		looks := 0
		n.r.Answer["ListContainers"] = func(m any) any {
			if looks++; looks == 2 { // the sandbox gets its container during the wait
				n.r.Containers = append(n.r.Containers, &runtimev1.Container{Id: "c", PodSandboxId: "s", State: running, ImageId: "sha256:1"})
			}
			return m
		}
		if r := n.pass(Images, reclaim.Periodic); outcome(t, r, "sha256:1").Outcome != Skipped || len(n.removed()) != 2 {
			t.Errorf("%s: removed %v, steps %+v, want two objects and image 1 skipped", name, n.removed(), r.Done)
		}
	}
}

// Unchanged state is neither written nor synced again: flash memory permits a limited number of
// writes.
func TestQuietPodsAreWrittenWhenTheyChange(t *testing.T) {
	n := newNode(t)
	n.sandbox("s-a", uidA, false, time.Hour)
	look := func() os.FileInfo {
		n.Plan(t.Context(), Containers, reclaim.Periodic)
		info, err := os.Stat(filepath.Join(n.state, podsFile))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := look()
	for i := range 10 {
		if i == 5 {
			n.open(nil) // a restart
		}
		n.sleep(time.Minute)
		n.up += time.Duration(i-5) * time.Microsecond // the clocks are read one after the other
		if after := look(); !os.SameFile(before, after) {
			t.Errorf("look %d: written, and nothing has changed", i)
		}
	}
	n.sandbox("s-b", uidB, false, time.Hour)
	if os.SameFile(before, look()) {
		t.Error("a pod more was not written")
	}
	if at := n.quiet.seen[uidA].SinceBoot; at != time.Hour {
		t.Errorf("quiet since %v after the boot, want 1h", at)
	}
}
