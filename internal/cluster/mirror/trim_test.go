package mirror

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/taint"
)

func tolerant(uid string, t ...v1.Toleration) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Spec: v1.PodSpec{NodeName: "n", Tolerations: t}}
}

// A user may create pods with any number of long toleration lists. Little of it is kept after the
// pods are gone, and pods with common lists still share them.
func TestTolerationsOfDeletedPods(t *testing.T) {
	m := New(Options{})
	long := make([]v1.Toleration, 100)
	for i := range long {
		long[i] = v1.Toleration{Key: strings.Repeat("k", 200), Effect: v1.TaintEffectNoExecute}
	}
	for i := range 2 * maxTolerations {
		long[0].Value = fmt.Sprint(i)
		for _, p := range []*v1.Pod{tolerant("long", long...), tolerant("short", v1.Toleration{Key: fmt.Sprint(i)})} {
			m.putPod(p)
			m.dropPod(p.UID)
		}
	}
	kept := 0
	for key := range m.trimmer.tolerations {
		kept += len(key)
	}
	if most := maxTolerations * 1 << 10; kept > most {
		t.Errorf("%d bytes of tolerations are kept, want at most %d", kept, most)
	}
	usual := v1.Toleration{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for _, uid := range []string{"a", "b"} {
		m.putPod(tolerant(uid, usual))
	}
	if a, b := m.pods["a"].Spec.Tolerations, m.pods["b"].Spec.Tolerations; &a[0] != &b[0] {
		t.Error("two pods with the same tolerations do not share them")
	}
}

// Of any number of tolerations, few are kept: those that decide on NoExecute taints, once each. If
// these are too many, a mark is kept that stays when the pod is trimmed again.
func TestManyTolerations(t *testing.T) {
	const many = 85_000
	list := func(one func(i int) v1.Toleration) (all []v1.Toleration) {
		for i := range many {
			all = append(all, one(i))
		}
		return all
	}
	noExecute := v1.TaintEffectNoExecute
	for name, c := range map[string]struct {
		all  []v1.Toleration
		kept int
		mark bool
	}{
		"different": {list(func(i int) v1.Toleration { return v1.Toleration{Key: fmt.Sprint(i), Effect: noExecute} }), 1, true},
		"equal":     {list(func(int) v1.Toleration { return v1.Toleration{Key: "k", Effect: noExecute} }), 1, false},
		"NoSchedule": {list(func(i int) v1.Toleration {
			return v1.Toleration{Key: fmt.Sprint(i), Effect: v1.TaintEffectNoSchedule}
		}), 0, false},
		"Gt": {list(func(i int) v1.Toleration {
			return v1.Toleration{Key: "k", Operator: v1.TolerationOpGt, Value: fmt.Sprint(i)}
		}), 0, false},
		"first matches all": {list(func(i int) v1.Toleration {
			return v1.Toleration{Key: strings.Repeat("k", min(i, 1)), Operator: v1.TolerationOpExists}
		}), 1, false},
	} {
		m := New(Options{})
		m.putPod(trimPod(tolerant("p", c.all...)))
		if kept := m.pods["p"].Spec.Tolerations; len(kept) != c.kept || taint.Unread(kept) != c.mark {
			t.Errorf("%s: %d tolerations kept, the mark %v, want %d and %v", name, len(kept), taint.Unread(kept), c.kept, c.mark)
		}
	}
}

// The creation time is kept: a pod younger than a taint has its deadline counted from there.
func TestCreationTimeIsKept(t *testing.T) {
	made := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if kept := trimPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: made}}); !kept.CreationTimestamp.Equal(&made) {
		t.Errorf("kept creation time = %v, want %v", kept.CreationTimestamp, made)
	}
}

// A heartbeat is no change that decisions depend on, whatever the order of the conditions: a patch
// moves a condition to the front.
func TestHeartbeatIsNoChange(t *testing.T) {
	m, at := New(Options{}), metav1.Now()
	node := func(version string, beat time.Time, status v1.ConditionStatus, types ...v1.NodeConditionType) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: version}}
		for _, kind := range types {
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{
				Type: kind, Status: status, LastHeartbeatTime: metav1.NewTime(beat), LastTransitionTime: at,
			})
		}
		return n
	}
	const ready, disk = v1.NodeReady, v1.NodeDiskPressure
	for i, step := range []struct {
		n     *v1.Node
		moved bool
	}{
		{node("1", at.Time, v1.ConditionTrue, ready, disk), true},
		{node("2", at.Add(time.Minute), v1.ConditionTrue, disk, ready), false},
		{node("3", at.Add(2*time.Minute), v1.ConditionTrue, ready, disk), false},
		{node("4", at.Add(2*time.Minute), v1.ConditionFalse, ready, disk), true},
		{node("5", at.Add(2*time.Minute), v1.ConditionFalse, ready), true},
		{node("6", at.Add(2*time.Minute), v1.ConditionFalse, disk), true},
	} {
		m.putNode(step.n)
		m.View(func(v *View) {
			if v.Changed != step.moved {
				t.Errorf("step %d: View.Changed = %v, want %v", i, v.Changed, step.moved)
			}
		})
	}
}
