package nodedescheduler

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cri"
	"jettison/eviction"
)

// A member of the socket's group can protect a pod from descheduling, but cannot make it a victim by a claimed
// owner, lack of local storage or priority.
func TestAMemberMakesNoVictim(t *testing.T) {
	web := func(l *cri.Listing) { l.Sandboxes[1].Owner = "ReplicaSet" }
	zero, most, controller := int32(0), int32(2e9), true
	for what, c := range map[string]struct {
		edit     func(*cri.Listing)
		owner    string
		priority *int32
		volumes  []v1.Volume
		root     int // victims if root provides the object
	}{
		"an owner":         {nil, "ReplicaSet", nil, nil, 1},
		"no local storage": {web, "", nil, nil, 1},
		"a priority":       {web, "ReplicaSet", &zero, nil, 1},
		"a high priority":  {web, "ReplicaSet", &most, nil, 0},
		"a local volume":   {web, "ReplicaSet", nil, []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}, 0},
	} {
		object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bare", UID: "u-bare"}, Spec: v1.PodSpec{Priority: c.priority, Volumes: c.volumes}}
		if c.owner != "" {
			object.OwnerReferences = []metav1.OwnerReference{{Kind: c.owner, Controller: &controller}}
		}
		for _, member := range []bool{false, true} {
			s := seen(c.edit)
			if what == "a priority" {
				s.Policy = &eviction.Policy{ProtectedNamespaces: []string{"shop"}}
			}
			s.PodObjects = []*v1.Pod{object}
			s.Objects = map[string]*eviction.Pod{"u-bare": eviction.NewPod(object)}
			want := c.root
			if member {
				s.Members, want = map[string]bool{"u-bare": true}, 0
			}
			p, _ := part()
			if victims := p.Plan(t0, settings(), s, true); len(victims) != want {
				t.Errorf("%s, by a member %v: victims %+v, want %d", what, member, victims, want)
			}
		}
	}
}
