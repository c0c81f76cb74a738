package eviction

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/stats"
)

// Pods that a foreign Summary lacks come in the order of their UIDs at each step.
func TestUnseenPodsHaveAnOrder(t *testing.T) {
	in := Input{Summary: &stats.Summary{}, Pods: map[string]*Pod{}}
	for i := range 20 {
		object := &Pod{Ref: stats.PodReference{UID: fmt.Sprintf("uid-%02d", i)}}
		in.Pods[object.Ref.UID] = object
	}
	var got []string
	in.unseen(func(p *stats.PodStats, _ *Pod) { got = append(got, p.PodRef.UID) })
	if len(got) != len(in.Pods) || !slices.IsSorted(got) {
		t.Errorf("unseen pods = %v, want all 20 in the order of their UIDs", got)
	}
}

// The agent keeps up to two of these for each pod of the node: a static pod's manifest, and the
// kubelet's object.
func TestPodObjectIsSmall(t *testing.T) {
	const limit = 1 << 10
	if size := unsafe.Sizeof(Pod{}); size > limit {
		t.Errorf("a Pod takes %d bytes, want at most %d", size, limit)
	}
	annotations := map[string]string{"kubernetes.io/config.source": "file", "jettison/never-evict": "true"}
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	p := NewManifestPod(object)
	if reflect.ValueOf(p.annotations).Pointer() != reflect.ValueOf(annotations).Pointer() {
		t.Error("a Pod copies annotations that all decide, want the object's map")
	}
	if p.localVolumes != nil {
		t.Errorf("local volumes of a pod without volumes = %v, want no map", p.localVolumes)
	}
	if got := NewPod(object).annotations; len(got) != 1 || got["jettison/never-evict"] != "true" || len(annotations) != 2 {
		t.Errorf("annotations of a client's pod = %v, object's = %v, want jettison's of two", got, annotations)
	}
}
