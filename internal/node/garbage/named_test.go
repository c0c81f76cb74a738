package garbage

import (
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/internal/agent/objects/podstore"
	"jettison/reclaim"
	"jettison/stats/read"
)

func object(uid string, phase v1.PodPhase, reason string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: v1.PodStatus{Phase: phase, Reason: reason}}
}

// The phase named by a client counts, and the agent's own eviction takes precedence until the pod is restarted.
func TestNamedPods(t *testing.T) {
	objects := []*v1.Pod{object(uidA, v1.PodRunning, ""), object(uidB, v1.PodFailed, "DeadlineExceeded")}
	n := NewNamed(func() ([]*v1.Pod, map[string]bool) { return objects, nil }, false)
	now := time.Now()
	want := func(what string, pods map[string]reclaim.Phase) {
		t.Helper()
		if got := n.Known(); !maps.Equal(got.Pods, pods) || !got.Synced {
			t.Errorf("%s: %v, synced %v; want %v", what, got.Pods, got.Synced, pods)
		}
	}
	listed := func(id string, ready bool, at time.Time) read.Index {
		return read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: id, UID: uidA, Ready: ready, CreatedAt: at}}})
	}
	sandbox := func(ready bool, at time.Time) read.Index { return listed("s", ready, at) }
	another := func(ready bool, at time.Time) read.Index { return listed("t", ready, at) }
	asTheySay := map[string]reclaim.Phase{uidA: reclaim.Active, uidB: reclaim.Terminated}
	evicted := map[string]reclaim.Phase{uidA: reclaim.Evicted, uidB: reclaim.Terminated}
	n.onPods(read.Index{})
	want("at first", asTheySay)
	n.onEvicted(now, uidA, []string{"s"})
	want("once it was evicted", evicted)
	n.onPods(sandbox(true, now.Add(-time.Second)))
	want("while its sandbox is there", evicted)
	n.onPods(another(false, now.Add(time.Second)))
	want("when a new one has ended", evicted)
	n.onPods(another(true, now.Add(time.Second)))
	want("when it is back", asTheySay)
	n.onEvicted(now, uidA, []string{"s"})
	n.onEvicted(now, uidB, nil)
	want("both", map[string]reclaim.Phase{uidA: reclaim.Evicted, uidB: reclaim.Evicted})
	n.onPods(sandbox(false, now))
	want("once the runtime knows nothing of one", evicted)
}

// A pod restarted before its cleanup ended counts as restarted: its new files are not garbage. The
// new sandbox is recognized because it is not among the evicted ones, regardless of the clock. If
// those are unknown, it must be younger than the eviction.
func TestAPodThatIsBackBeforeItsCleanUpEnded(t *testing.T) {
	began := time.Now()
	pod := func(c *cri.Container, sandboxes ...cri.PodSandbox) read.Index {
		l := cri.Listing{Sandboxes: sandboxes}
		if c != nil {
			l.Containers = append(l.Containers, *c)
		}
		return read.NewIndex(l)
	}
	at := func(id string, ready bool, after time.Duration) cri.PodSandbox {
		return cri.PodSandbox{ID: id, UID: uidA, Ready: ready, CreatedAt: began.Add(after)}
	}
	for what, c := range map[string]struct {
		sandboxes []string
		now       read.Index
		want      reclaim.Phase
	}{
		"another sandbox":                     {[]string{"s"}, pod(nil, at("t", true, time.Second), at("s", false, -time.Hour)), reclaim.Active},
		"another one, the clock was set back": {[]string{"s"}, pod(nil, at("t", true, -2*time.Hour), at("s", false, -time.Hour)), reclaim.Active},
		"another one, which has ended":        {[]string{"s"}, pod(nil, at("t", false, time.Second)), reclaim.Evicted},
		"the one that was evicted":            {[]string{"s"}, pod(nil, at("s", true, time.Hour)), reclaim.Evicted},
		"a container in that one": {
			[]string{"s"}, pod(&cri.Container{ID: "c", SandboxID: "s", Running: true, State: cri.Running, CreatedAt: began.Add(time.Second)}, at("s", true, -time.Hour)), reclaim.Active,
		},
		"its container in that one": {
			[]string{"s"}, pod(&cri.Container{ID: "c", SandboxID: "s", Running: true, State: cri.Running, CreatedAt: began.Add(-time.Second)}, at("s", true, -time.Hour)), reclaim.Evicted,
		},
		"none was known, and one is younger": {nil, pod(nil, at("t", true, time.Second)), reclaim.Active},
		"none was known, and one is older":   {nil, pod(nil, at("t", true, -time.Second)), reclaim.Evicted},
	} {
		n := NewNamed(func() ([]*v1.Pod, map[string]bool) { return []*v1.Pod{object(uidA, v1.PodRunning, "")}, nil }, false)
		n.onEvicted(began, uidA, c.sandboxes) // at the end of the cleanup, after the restart
		n.onPods(c.now)
		if got := n.Known().Pods[uidA]; got != c.want {
			t.Errorf("%s: phase = %v, want %v", what, got, c.want)
		}
	}
}

// No pod counts as gone before all manifests were read, or within an hour after a manifest was
// unreadable.
func TestManifestsAreWaitedFor(t *testing.T) {
	n := NewNamed(func() ([]*v1.Pod, map[string]bool) { return nil, nil }, true)
	up := time.Second // shortly after the boot
	n.uptime = func() time.Duration { return up }
	if n.synced() {
		t.Error("none was read yet")
	}
	if n.OnManifests(); !n.synced() {
		t.Error("synced after all manifests were read = false, want true")
	}
	n.OnManifestDoubt()
	if up += manifestErrorMax; n.synced() {
		t.Error("a doubt is over before its hour")
	}
	if up++; !n.synced() { // regardless of the wall clock
		t.Error("a doubt holds for longer than an hour")
	}
}

// The collector uses the phase named by a client: it removes everything of an evicted pod, and keeps the last container and the logs of a
// failed one.
func TestAnEvictedPodOfAClientIsKnownAsOne(t *testing.T) {
	for want, status := range map[reclaim.Phase]string{
		reclaim.Evicted:    `{"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}`,
		reclaim.Terminated: `{"phase": "Failed", "reason": "DeadlineExceeded"}`,
		reclaim.Active:     `{"phase": "Running", "reason": "Evicted"}`,
	} {
		store := podstore.New()
		pod := `[{"metadata": {"uid": "` + uidA + `", "namespace": "default", "name": "p"},
			"spec": {"containers": [{"name": "c", "image": "i"}]}, "status": ` + status + `}]`
		if _, _, err := store.Put(strings.NewReader(pod), false, podstore.ByRoot); err != nil {
			t.Fatal(err)
		}
		known := NewNamed(func() ([]*v1.Pod, map[string]bool) { return store.Snapshot().Objects, nil }, false).Known()
		if got, named := known.Pods[uidA]; !named || got != want {
			t.Errorf("%s: phase = %v, want %v", status, got, want)
		}
	}
}

// A member of the socket's group may report the end of any pod. While the pod is alive, for example between two
// starts of a container, nothing of it is removed. Once it has been quiet, its end counts.
func TestAMemberEndsNoLivingPod(t *testing.T) {
	for phase, trigger := range map[reclaim.Phase]reclaim.Trigger{
		reclaim.Gone: reclaim.Periodic, reclaim.Evicted: reclaim.Periodic, reclaim.Terminated: reclaim.DiskPressure,
	} {
		n := newNode(t)
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: phase}, Claimed: map[string]bool{uidA: true}, Synced: true})
		n.sandbox("s", uidA, true, time.Hour)
		n.container("crashed", "s", uidA, exited, 2*time.Minute, "")
		n.want(n.pass(Containers, trigger))
		n.sleep(time.Hour)
		n.want(n.pass(Containers, trigger))
		n.r.Change(func() { n.r.Sandboxes[0].State = runtimev1.PodSandboxState_SANDBOX_NOTREADY })
		n.want(n.pass(Containers, trigger))
		n.sleep(n.o.PodGoneAfter)
		again := false
		n.r.Answer["ContainerStatus"] = func(m any) any {
			if !again { // after the plan
				again = true
				n.r.Sandboxes = append(n.r.Sandboxes, &runtimev1.PodSandbox{Id: "t", Metadata: &runtimev1.PodSandboxMetadata{Uid: uidA}, CreatedAt: n.clock.UnixNano()})
			}
			return m
		}
		if r := n.pass(Containers, trigger); !again {
			t.Errorf("%v: a quiet pod has no step: %+v", phase, r.Done)
		} else {
			n.want(r)
		}
		n.r.Change(func() { n.r.Sandboxes = n.r.Sandboxes[:1] })
		n.sleep(time.Minute)
		n.pass(Containers, trigger)
		n.sleep(n.o.PodGoneAfter)
		n.want(n.pass(Containers, trigger), "container crashed", "sandbox s")
	}
}

// Only the end of a pod that members alone report is a claim, and not one that the agent evicted.
func TestClaims(t *testing.T) {
	pods := []*v1.Pod{object(uidA, v1.PodFailed, ""), object(uidB, v1.PodRunning, ""), object("c", v1.PodFailed, ""), object("d", v1.PodFailed, "")}
	n := NewNamed(func() ([]*v1.Pod, map[string]bool) {
		return pods, map[string]bool{uidA: true, uidB: true, "c": true}
	}, false)
	n.onEvicted(time.Now(), "c", nil)
	if got := n.Known().Claimed; !maps.Equal(got, map[string]bool{uidA: true}) {
		t.Errorf("claimed ends = %v, want that of %s", got, uidA)
	}
}
