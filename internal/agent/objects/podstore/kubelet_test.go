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

// The kubelet's word comes before that of any client, and takes nothing from what clients say of other pods; the same again is no change.
func TestTheKubeletsWord(t *testing.T) {
	s := New()
	put(t, s, false, text("a", 1), text("b", 1))
	if !s.Kubelet().IsZero() {
		t.Error("the kubelet has told nothing")
	}
	if err := s.SetKubelet([]*v1.Pod{ofKubelet("b", 7), ofKubelet("c", 7)}); err != nil {
		t.Fatal(err)
	}
	now := s.Snapshot()
	if got := uids(now); !slices.Equal(got, []string{"a", "b", "c"}) || now.Clients != 1 || now.Kubelet != 2 || s.Kubelet().IsZero() {
		t.Errorf("%v, %d of clients, %d of the kubelet", got, now.Clients, now.Kubelet)
	}
	if got := *now.Objects[1].Spec.Priority; got != 7 {
		t.Errorf("priority %d, want the kubelet's", got)
	}
	if err := errors.Join(s.SetKubelet([]*v1.Pod{ofKubelet("c", 7), ofKubelet("b", 7)}), s.UpdateKubelet(ofKubelet("b", 7))); err != nil {
		t.Fatal(err)
	}
	if s.Snapshot() != now {
		t.Error("the same again is a change")
	}
	if err := s.UpdateKubelet(ofKubelet("b", 8)); err != nil || *s.Snapshot().Objects[1].Spec.Priority != 8 {
		t.Errorf("an update: %v", err)
	}
	s.DropKubelet("b")
	s.DropKubelet("b")
	if now = s.Snapshot(); *now.Objects[1].Spec.Priority != 1 || now.Clients != 2 || now.Kubelet != 1 {
		t.Errorf("the client's word counts again: %+v", now)
	}
	put(t, s, true)
	if got := uids(s.Snapshot()); !slices.Equal(got, []string{"c"}) {
		t.Errorf("a client's replace leaves %v", got)
	}
}

// More pods than a node has are refused whole, and what was known stays.
func TestTheKubeletHasTooMany(t *testing.T) {
	s := New()
	if err := s.SetKubelet([]*v1.Pod{ofKubelet("a", 1)}); err != nil {
		t.Fatal(err)
	}
	var many []*v1.Pod
	for i := range MaxPods + 1 {
		many = append(many, ofKubelet(fmt.Sprint(i), 1))
	}
	if err := s.SetKubelet(many); !errors.Is(err, ErrTooLarge) || len(s.Snapshot().Pods) != 1 {
		t.Errorf("%v, %d pods", err, len(s.Snapshot().Pods))
	}
}
