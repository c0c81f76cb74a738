package garbage

import (
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cri"
	"jettison/internal/podstore"
	"jettison/reclaim"
	"jettison/stats/read"
)

func object(uid string, phase v1.PodPhase, reason string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: v1.PodStatus{Phase: phase, Reason: reason}}
}

// What a client says of a pod's end counts, and what the agent has done itself counts more, until the pod is back.
func TestNamedPods(t *testing.T) {
	objects := []*v1.Pod{object(uidA, v1.PodRunning, ""), object(uidB, v1.PodFailed, "DeadlineExceeded")}
	n := NewNamed(func() []*v1.Pod { return objects }, false)
	now := time.Now()
	want := func(what string, pods map[string]reclaim.Phase) {
		t.Helper()
		if got := n.Known(); !maps.Equal(got.Pods, pods) || !got.Synced {
			t.Errorf("%s: %v, synced %v; want %v", what, got.Pods, got.Synced, pods)
		}
	}
	sandbox := func(ready bool, at time.Time) read.Index {
		return read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: uidA, Ready: ready, CreatedAt: at}}})
	}
	asTheySay := map[string]reclaim.Phase{uidA: reclaim.Active, uidB: reclaim.Terminated}
	evicted := map[string]reclaim.Phase{uidA: reclaim.Evicted, uidB: reclaim.Terminated}
	n.onPods(read.Index{})
	want("at first", asTheySay)
	n.onEvicted(now, uidA)
	want("once it was evicted", evicted)
	n.onPods(sandbox(true, now.Add(-time.Second)))
	want("while its sandbox is there", evicted)
	n.onPods(sandbox(false, now.Add(time.Second)))
	want("when a new one has ended", evicted)
	n.onPods(sandbox(true, now.Add(time.Second)))
	want("when it is back", asTheySay)
	n.onEvicted(now, uidA)
	n.onEvicted(now, uidB)
	want("both", map[string]reclaim.Phase{uidA: reclaim.Evicted, uidB: reclaim.Evicted})
	n.onPods(sandbox(false, now))
	want("once the runtime knows nothing of one", evicted)
}

// No pod is gone before all manifests were read, nor for an hour after one could not be.
func TestManifestsAreWaitedFor(t *testing.T) {
	n := NewNamed(func() []*v1.Pod { return nil }, true)
	now := time.Now()
	if n.synced(now) {
		t.Error("none was read yet")
	}
	if n.OnManifests(); !n.synced(now) {
		t.Error("all were read")
	}
	n.OnManifestDoubt(now)
	if n.synced(now.Add(doubtFor)) || !n.synced(now.Add(doubtFor+1)) {
		t.Error("a doubt holds for an hour")
	}
}

// What a client says of a pod's end is what the collector goes by: of one that was evicted all goes, of one that has merely failed its
// last container and its logs stay.
func TestAnEvictedPodOfAClientIsKnownAsOne(t *testing.T) {
	for want, status := range map[reclaim.Phase]string{
		reclaim.Evicted:    `{"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}`,
		reclaim.Terminated: `{"phase": "Failed", "reason": "DeadlineExceeded"}`,
		reclaim.Active:     `{"phase": "Running", "reason": "Evicted"}`,
	} {
		store := podstore.New()
		pod := `[{"metadata": {"uid": "` + uidA + `", "namespace": "default", "name": "p"},
			"spec": {"containers": [{"name": "c", "image": "i"}]}, "status": ` + status + `}]`
		if _, _, err := store.Put(strings.NewReader(pod), false); err != nil {
			t.Fatal(err)
		}
		known := NewNamed(func() []*v1.Pod { return store.Snapshot().Objects }, false).Known()
		if got, named := known.Pods[uidA]; !named || got != want {
			t.Errorf("%s: %v, want %v", status, got, want)
		}
	}
}
