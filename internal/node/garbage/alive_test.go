package garbage

import (
	"slices"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/reclaim"
)

// The log of a dead container stays while a live pod with another UID uses it: a client may change
// a pod's UID at each update. A log with the pod's UID in its path is removed without status calls
// for other pods' containers.
func TestALogThatAnotherPodHas(t *testing.T) {
	for path, stays := range map[string]bool{"/log/pods/app/main/0.log": true, "/log/pods/default_a_" + uidA + "/main/0.log": false} {
		for _, state := range []runtimev1.ContainerState{running, created, unknown, exited} {
			n := newNode(t)
			n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active, uidB: reclaim.Active}, Synced: true})
			log := n.file(path)
			n.sandbox("s-a", uidA, true, time.Hour)
			n.sandbox("s-b", uidB, true, time.Minute)
			n.container("c-a", "s-a", uidA, exited, time.Hour, "")
			n.container("c-a2", "s-a", uidA, exited, time.Minute, "")
			n.container("c-b", "s-b", uidB, state, time.Minute, "")
			for id, state := range map[string]runtimev1.ContainerState{"c-a": exited, "c-b": state} {
				n.r.ContainerStatuses[id] = &runtimev1.ContainerStatus{Id: id, State: state, LogPath: path}
			}
			n.want(n.pass(Containers, reclaim.Periodic), "container c-a")
			if exists(log) != (stays && state != exited) {
				t.Errorf("%s, the other one %v: the log is there: %v", path, state, exists(log))
			}
			if _, asked := n.logs["c-b"]; asked && !stays {
				t.Errorf("%s: the other pod's container was asked", path)
			}
		}
	}
}

// An image that is pulled again gets its minimum age again, also after a restart.
func TestAnImageThatIsPulledAgain(t *testing.T) {
	for _, restart := range []bool{false, true} {
		n := full(t)
		n.pass(Images, reclaim.DiskPressure)
		first := n.removed()
		if !slices.Contains(first, "image sha256:2") {
			t.Fatalf("first removals = %v, want image sha256:2 among them", first)
		}
		if restart {
			n.open(nil)
		}
		n.sleep(10 * time.Second)
		n.image("sha256:2", 300)
		n.sandbox("s-b", uidB, true, 90*time.Second) // created before a pull that took 85 s
		n.pass(Images, reclaim.DiskPressure)
		if got := n.removed()[len(first):]; len(got) > 0 {
			t.Errorf("restart %v: removed %v, pulled a moment ago", restart, got)
		}
		n.sleep(n.o.Policy.Image.MinAge)
		if n.pass(Images, reclaim.DiskPressure); len(n.removed()) == len(first) {
			t.Errorf("restart %v: it never goes", restart)
		}
	}
}

// An evicted pod is restarted before the agent's list contains its new sandbox. Leftovers of an
// init container in the new sandbox stay, even if they appear after the look.
func TestAnEvictedPodIsBackWithAnInitContainer(t *testing.T) {
	comes := func(n *node) {
		n.sandbox("s-new", uidA, true, 5*time.Second)
		n.container("init", "s-new", uidA, exited, 4*time.Second, "")
	}
	for _, late := range []bool{false, true} {
		n := newNode(t)
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, EvictedSandboxes: map[string][]string{uidA: {"s-old"}}, Synced: true})
		n.sandbox("s-old", uidA, false, time.Hour)
		n.container("old", "s-old", uidA, exited, time.Hour, "")
		if !late {
			comes(n)
			n.want(n.pass(Containers, reclaim.Periodic), "container old", "sandbox s-old")
			continue
		}
		first := true
		n.r.Answer["ListContainers"] = func(m any) any {
			if first {
				n.r.Sandboxes = append(n.r.Sandboxes, &runtimev1.PodSandbox{
					Id: "s-new", Metadata: &runtimev1.PodSandboxMetadata{Uid: uidA}, CreatedAt: n.clock.UnixNano(),
				})
			}
			first = false
			return m
		}
		n.want(n.pass(Containers, reclaim.Periodic))
	}
}

// A single pass (Once) has no successor, so neither a slow runtime nor a young sandbox postpones
// it.
func TestAPassByHandIsNotPutOff(t *testing.T) {
	for _, once := range []bool{true, false} {
		n := full(t)
		n.open(func(o *Options) { o.Once = once })
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		n.container("c", "s", uidA, exited, time.Hour, "")
		n.sandbox("young", uidB, true, time.Second)
		n.seen()
		n.slow, n.wait = -1, 0
		r := n.pass(Everything, reclaim.Periodic)
		if (r.Postponed == "") != once || (len(n.removed()) > 0) != once {
			t.Errorf("once %v: put off %q, removed %v", once, r.Postponed, n.removed())
		}
		if once && r.Plan.Pulling != "" {
			t.Errorf("images were put off: %s", r.Plan.Pulling)
		}
	}
}
