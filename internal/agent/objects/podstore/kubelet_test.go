package podstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func ofKubelet(uid string, priority int32) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: "pod-" + uid}, Spec: v1.PodSpec{Priority: &priority}}
}

// The kubelet's object of a pod overrides a client's, and does not affect other pods. Equal objects
// are no change.
func TestKubeletOverridesClients(t *testing.T) {
	s := New()
	put(t, s, false, text("a", 1), text("b", 1))
	if !s.KubeletSynced().IsZero() {
		t.Error("KubeletSynced is set before a list")
	}
	if err := s.SetKubelet([]*v1.Pod{ofKubelet("b", 7), ofKubelet("c", 7)}); err != nil {
		t.Fatal(err)
	}
	now := s.Snapshot()
	if got := uids(now); !slices.Equal(got, []string{"a", "b", "c"}) || now.Clients != 1 || now.Kubelet != 2 || s.KubeletSynced().IsZero() {
		t.Errorf("pods = %v, %d of clients, %d of the kubelet; want a, b, c with 1 and 2, and a sync time", got, now.Clients, now.Kubelet)
	}
	if got := *now.Objects[1].Spec.Priority; got != 7 {
		t.Errorf("priority of b = %d, want the kubelet's 7", got)
	}
	if err := errors.Join(s.SetKubelet([]*v1.Pod{ofKubelet("c", 7), ofKubelet("b", 7)}), s.UpdateKubelet(ofKubelet("b", 7))); err != nil {
		t.Fatal(err)
	}
	if s.Snapshot() != now {
		t.Error("equal objects made a new snapshot")
	}
	if err := s.UpdateKubelet(ofKubelet("b", 8)); err != nil || *s.Snapshot().Objects[1].Spec.Priority != 8 {
		t.Errorf("after UpdateKubelet: error %v, or priority of b not 8", err)
	}
	s.DropKubelet("b")
	s.DropKubelet("b")
	if now = s.Snapshot(); *now.Objects[1].Spec.Priority != 1 || now.Clients != 2 || now.Kubelet != 1 {
		t.Errorf("after DropKubelet: %+v, want the client's object of b", now)
	}
	put(t, s, true)
	if got := uids(s.Snapshot()); !slices.Equal(got, []string{"c"}) {
		t.Errorf("pods after a client's replace = %v, want c", got)
	}
}

// More pods than the limit are rejected as a whole, and the known ones stay.
func TestTooManyKubeletPods(t *testing.T) {
	s := New()
	if err := s.SetKubelet([]*v1.Pod{ofKubelet("a", 1)}); err != nil {
		t.Fatal(err)
	}
	var many []*v1.Pod
	for i := range MaxPods + 1 {
		many = append(many, ofKubelet(fmt.Sprint(i), 1))
	}
	if err := s.SetKubelet(many); !errors.Is(err, ErrTooLarge) || len(s.Snapshot().Pods) != 1 {
		t.Errorf("SetKubelet with too many pods: error %v, %d pods known; want ErrTooLarge, 1", err, len(s.Snapshot().Pods))
	}
}
