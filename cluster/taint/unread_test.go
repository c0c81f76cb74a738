package taint

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tolerations of a pod that has too many are read when a taint concerns it, and again when they
// or the taints change. Until then the pod stays.
func TestTolerationsAreRead(t *testing.T) {
	c := New(Config{})
	s, n, p := fixture(&metav1.Time{Time: start})
	p.ResourceVersion, p.Spec.Tolerations = "5", []v1.Toleration{{Operator: OperatorUnread, Value: "a"}}
	seconds := int64(60)
	all := []v1.Toleration{{Key: "other", Operator: v1.TolerationOpExists}, {Key: "k", Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}
	now := start.Add(time.Second)
	step := func(reads, evictions int) *Actions {
		t.Helper()
		out := c.Step(now, s)
		if len(out.Reads) != reads || len(out.Evict) != evictions || c.Due(now, n, p) != (evictions > 0) {
			t.Fatalf("after %v: Step returns %+v, want %d reads and %d evictions", now.Sub(start), out, reads, evictions)
		}
		return out
	}
	first := step(1, 0).Reads[0]
	step(0, 0) // in flight
	if why := c.Explain(now, n, p); len(why) != 1 || !why[0].Unread {
		t.Errorf("Explain before the read returns %+v, want unread", why)
	}
	c.EndRead(now, &first, "", nil)
	now = step(0, 0).Next
	first = step(1, 0).Reads[0]
	c.EndRead(now, &first, "a", Select(first.Taints, all))
	if out := step(0, 0); !out.Next.Equal(start.Add(time.Minute)) {
		t.Errorf("next step %v after start, want 1m", out.Next.Sub(start))
	}
	if why := c.Explain(now, n, p); len(why) != 1 || !why[0].Deadline.Equal(start.Add(time.Minute)) {
		t.Errorf("Explain returns %+v, want a deadline after 1m", why)
	}
	p.ResourceVersion = "6"
	step(0, 0) // the tolerations are the same
	p.Spec.Tolerations = []v1.Toleration{{Operator: OperatorUnread, Value: "b"}}
	again := step(1, 0).Reads[0]
	c.EndRead(now, &again, "b", Select(again.Taints, all))
	n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "other", Effect: v1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: start}})
	again = step(1, 0).Reads[0]
	c.EndRead(now, &again, "b", Select(again.Taints, all))
	now = start.Add(time.Minute)
	step(0, 1)
	n.Spec.Taints = nil
	step(0, 0)
	if c.EndRead(now, &again, "b", nil); len(c.reads) > 0 { // an answer that nothing needs any more
		t.Errorf("%d reads are kept without a taint, want none", len(c.reads))
	}
}

// The value of NotKept differs for lists that differ in any field.
func TestNotKeptIdentifiesList(t *testing.T) {
	seconds, longer := int64(60), int64(61)
	all := map[string]string{}
	for name, edit := range map[string]func(*v1.Toleration){
		"none": func(*v1.Toleration) {}, "key": func(o *v1.Toleration) { o.Key = "other" },
		"operator": func(o *v1.Toleration) { o.Operator = v1.TolerationOpExists }, "value": func(o *v1.Toleration) { o.Value = "other" },
		"effect": func(o *v1.Toleration) { o.Effect = "" }, "seconds": func(o *v1.Toleration) { o.TolerationSeconds = &longer },
		"no seconds": func(o *v1.Toleration) { o.TolerationSeconds = nil },
	} {
		o := v1.Toleration{Key: "k", Operator: v1.TolerationOpEqual, Value: "v", Effect: v1.TaintEffectNoExecute, TolerationSeconds: &seconds}
		edit(&o)
		list := NotKept([]v1.Toleration{o})
		if other, same := all[list.Value]; same {
			t.Errorf("NotKept returns the same value with the edits %q and %q", name, other)
		}
		if all[list.Value] = name; !Unread([]v1.Toleration{list}) {
			t.Errorf("NotKept returns %+v, want a toleration that is unread", list)
		}
	}
}

// The selected tolerations decide as all of them do.
func TestSelectedTolerationsDecide(t *testing.T) {
	random := rand.New(rand.NewPCG(38, 16))
	keys := []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable, "k", ""}
	for range 2000 {
		_, n, _ := fixture(nil)
		n.Spec.Taints = nil
		var all []v1.Toleration
		for range random.IntN(6) {
			o := v1.Toleration{Key: keys[random.IntN(4)], Operator: v1.TolerationOpExists}
			if random.IntN(2) == 0 {
				o.Operator, o.Value = v1.TolerationOpEqual, fmt.Sprint(random.IntN(2))
			}
			if seconds := random.Int64N(100); seconds > 30 {
				o.TolerationSeconds = &seconds
			}
			all = append(all, o)
		}
		for _, key := range keys[:3] {
			if random.IntN(2) == 0 {
				added := metav1.NewTime(start.Add(-time.Duration(random.IntN(200)) * time.Second))
				n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Value: fmt.Sprint(random.IntN(2)), Effect: v1.TaintEffectNoExecute, TimeAdded: &added})
			}
		}
		turned := metav1.NewTime(start.Add(-time.Duration(random.IntN(100)) * time.Second))
		at, _, limited := deadline(n.Spec.Taints, times{transition: turned.Time, created: start}, all)
		selected := Select(n.Spec.Taints, all)
		if got, _, also := deadline(n.Spec.Taints, times{transition: turned.Time, created: start}, selected); !got.Equal(at) || also != limited {
			t.Fatalf("taints %+v: deadline %v (%v) with %+v, want %v (%v) as with %+v", n.Spec.Taints, got, also, selected, at, limited, all)
		}
	}
}
