package admit

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"jettison/stats"
)

// kubeletChoice reimplements the kubelet's choice from its description: class by class the pod that
// is nearest to the remaining needs. A better class counts all pods of the worse classes as freed.
func kubeletChoice(needs []Need, byClass map[stats.QOSClass][]Held) []Held {
	order := []stats.QOSClass{stats.Guaranteed, stats.Burstable, stats.BestEffort}
	var chosen []Held
	for i, class := range order {
		left := map[int]int64{}
		for k, n := range needs {
			left[k] = n.Amount
		}
		take := func(h *Held) {
			for k, n := range needs {
				left[k] -= h.frees(n.Resource)
			}
		}
		for j := range chosen {
			take(&chosen[j])
		}
		for _, worse := range order[i+1:] {
			for j := range byClass[worse] {
				take(&byClass[worse][j])
			}
		}
		rest := slices.Clone(byClass[class])
		for {
			unmet := map[int]int64{}
			for k, v := range left {
				if v > 0 {
					unmet[k] = v
				}
			}
			if len(unmet) == 0 {
				break
			}
			best, bestAt := math.Inf(1), -1
			for j := range rest {
				d := 0.0
				for k := range needs { // in order, so that sums are equal to the last bit
					if v, ok := unmet[k]; ok {
						d += math.Pow(math.Max(0, float64(v-rest[j].frees(needs[k].Resource)))/float64(v), 2)
					}
				}
				key := func(h *Held) []int64 { return []int64{h.Requests["memory"], h.Requests["cpu"], -h.Created.Unix()} }
				if d < best || d == best && (slices.Compare(key(&rest[j]), key(&rest[bestAt])) < 0 ||
					slices.Equal(key(&rest[j]), key(&rest[bestAt])) && rest[j].UID > rest[bestAt].UID) {
					best, bestAt = d, j
				}
			}
			take(&rest[bestAt])
			for k := range unmet { // only what was unmet counts on
				if left[k] < 0 {
					left[k] = 0
				}
			}
			chosen = append(chosen, rest[bestAt])
			rest = slices.Delete(rest, bestAt, bestAt+1)
		}
	}
	return chosen
}

func uids(list []Held) (out []string) {
	for i := range list {
		out = append(out, string(list[i].UID))
	}
	slices.Sort(out)
	return out
}

// The victims of a plan free enough. They are the kubelet's without the unnecessary ones, and none
// can be removed. A plan exists exactly if the preemptible pods suffice. It contains no other pods.
func TestVictimsAreTheKubelets(t *testing.T) {
	planned, pruned := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n, p := drawFull(t, func(*v1.Pod) {})
		for i := range n.Pods {
			n.Pods[i].Ending = rapid.IntRange(0, 9).Draw(t, "ending") == 0
			n.Pods[i].Protected = rapid.IntRange(0, 9).Draw(t, "spared") == 0
		}
		preemptor := HeldBy(p)
		plan, result := Preempt(p, n)
		if result.Admit != Admit(p, n).Admit {
			t.Fatalf("Preempt() result = %+v, want the same decision as Admit() = %+v", result, Admit(p, n))
		}
		byClass, ending, able := map[stats.QOSClass][]Held{}, []Held(nil), []Held(nil)
		for _, h := range n.Pods {
			switch {
			case h.Ending:
				ending = append(ending, h)
			case !h.Protected && !h.Static && (!h.Critical() || h.Priority.OK && preemptor.Priority.OK && h.Priority.V < preemptor.Priority.V):
				byClass[h.QOS], able = append(byClass[h.QOS], h), append(able, h)
			}
		}
		fits := func(gone []Held) bool {
			after := n
			after.Pods = slices.DeleteFunc(slices.Clone(n.Pods), func(h Held) bool {
				return slices.ContainsFunc(gone, func(g Held) bool { return g.UID == h.UID })
			})
			return Admit(p, after).Admit
		}
		possible := !result.Admit && preemptor.Critical() && fits(slices.Concat(ending, able))
		if plan.Empty() == possible {
			t.Fatalf("plan = %s, want a plan: %v (all preemptible pods together suffice)", plan.text(), possible)
		}
		if plan.Empty() {
			return
		}
		planned++
		if !fits(slices.Concat(plan.Victims, plan.Awaited)) {
			t.Fatalf("the pod does not fit after the plan %s", plan.text())
		}
		want := kubeletChoice(remainingNeeds(plan.Needs, pointers(ending)), byClass)
		for i, v := range plan.Victims {
			if !slices.Contains(uids(able), string(v.UID)) {
				t.Fatalf("victim %s is not preemptible", v.Name)
			}
			if !slices.Contains(uids(want), string(v.UID)) {
				t.Fatalf("plan = %s, want only victims of the kubelet: %s", plan.text(), names(want))
			}
			if fits(slices.Concat(plan.Awaited, ending, slices.Delete(slices.Clone(plan.Victims), i, i+1))) {
				t.Fatalf("victim %s is unnecessary in plan %s", v.Name, plan.text())
			}
		}
		if len(want) > len(plan.Victims) {
			pruned++
		}
	})
	if planned == 0 {
		t.Error("no generated case led to a preemption")
	}
	t.Log("plans:", planned, "with fewer victims than the kubelet's:", pruned)
}

// After failed kills a pod is admitted only if it fits next to all victims that did not die.
func TestFailedKillsRejectThePod(t *testing.T) {
	failed := 0
	rapid.Check(t, func(t *rapid.T) {
		n, p := drawFull(t, func(*v1.Pod) {})
		plan, _ := Preempt(p, n)
		if len(plan.Victims) == 0 {
			t.Skip("no victims") // rapid draws another case
		}
		after, alive, kills := n, []types.UID(nil), []Kill(nil)
		after.Pods = slices.Clone(n.Pods)
		for _, v := range plan.Victims {
			dead := rapid.Bool().Draw(t, "dead")
			if !dead {
				alive = append(alive, v.UID)
			}
			if dead || rapid.Bool().Draw(t, "lost by the runtime") {
				after.Pods = slices.DeleteFunc(after.Pods, func(h Held) bool { return h.UID == v.UID })
			}
			if dead {
				kills = append(kills, Kill{UID: v.UID})
			} else if rapid.Bool().Draw(t, "reported") {
				kills = append(kills, Kill{v.UID, "it did not die"})
			}
		}
		r := plan.Outcome(p, after, kills)
		if r.Admit != (len(alive) == 0) { // none of the victims could be spared
			t.Fatalf("Outcome() = %+v with victims %v alive", r, alive)
		}
		for _, uid := range alive {
			failed++
			if r.Reason != ReasonUnexpected || !strings.Contains(r.Message, "pod ns/"+string(uid)+" was not killed: it") {
				t.Fatalf("Outcome() = %+v, want a message that names victim %s", r, uid)
			}
		}
	})
	if failed == 0 {
		t.Error("no generated case had a failed kill")
	}
}

// A reservation lasts 30 s and requires a UID.
func TestPromises(t *testing.T) {
	var p Reservations
	start := time.Unix(1000, 0)
	if p.Reserve(start, Held{Name: "no-uid"}) || len(p.Held(start)) != 0 {
		t.Error("Keep() reserved resources for a pod without a UID")
	}
	p.Reserve(start, Held{UID: "b"})
	p.Reserve(start.Add(10*time.Second), Held{UID: "a"})
	p.Reserve(start, Held{UID: "c"})
	p.Drop("c")
	p.Drop("unknown")
	for _, c := range []struct {
		at   time.Duration
		want []string
	}{
		{30*time.Second - 1, []string{"a", "b"}},
		{30 * time.Second, []string{"a"}},
		{40 * time.Second, nil},
	} {
		if diff := cmp.Diff(c.want, uids(p.Held(start.Add(c.at)))); diff != "" {
			t.Errorf("reservations after %v (-want +got):\n%s", c.at, diff)
		}
	}
	if len(p.kept) != 0 {
		t.Errorf("expired reservations kept = %d, want 0", len(p.kept))
	}
	p.Reserve(start, Held{UID: "a"})
	p.Reserve(start.Add(20*time.Second), Held{UID: "a"})
	if len(p.Held(start.Add(40*time.Second))) != 1 {
		t.Error("a renewed reservation ended after the first period")
	}
}

// need returns the missing amount and saturates.
func TestNeed(t *testing.T) {
	for _, c := range []struct{ requested, used, capacity, want int64 }{
		{5, 3, 4, 4}, {5, 0, 4, 1}, {5, 7, 4, 8}, {math.MaxInt64, math.MaxInt64, 4, math.MaxInt64},
	} {
		s := Shortage{Requested: c.requested, Used: c.used, Capacity: c.capacity}
		if got := s.need().Amount; got != c.want {
			t.Errorf("need of %+v = %d, want %d", c, got, c.want)
		}
	}
}

// Outcome reports a new reason that no kill removes instead of a failed kill.
func TestOutcomeReportsNewReasonFirst(t *testing.T) {
	priority := int32(systemCriticalPriority)
	list := func(n int64) v1.ResourceList {
		return v1.ResourceList{"memory": *resource.NewQuantity(n, resource.BinarySI)}
	}
	p := PodAttributes{Pod: &v1.Pod{Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{
		Resources: v1.ResourceRequirements{Requests: list(5)}}}}}}
	n := NodeState{Allocatable: list(5), Pods: []Held{{UID: "a", Name: "a", QOS: stats.Burstable, Requests: Amounts{"memory": 1}}}}
	plan, r := Preempt(p, n)
	if len(plan.Victims) != 1 || r.Reason != "OutOfmemory" {
		t.Fatalf("Preempt() = %s, %+v, want one victim and OutOfmemory", plan.text(), r)
	}
	n.ShuttingDown = true
	if r := plan.Outcome(p, n, []Kill{{"a", "it did not die"}}); r.Reason != ReasonShutdown {
		t.Errorf("Outcome() = %+v, want reason %s", r, ReasonShutdown)
	}
}
