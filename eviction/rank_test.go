package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"jettison/stats"
)

// pod makes a candidate for memory: priority, request and working set as quantities; "-" is absent.
func pod(name string, priority int32, request, usage string) Candidate {
	c := Candidate{Priority: stats.Some(priority)}
	c.Pod.PodRef = stats.PodReference{Namespace: "default", Name: name, UID: name}
	c.Pod.Announced = true
	if request != "-" {
		v := quantity(request)
		c.Pod.MemoryRequest = stats.Some(stats.Range{Min: v, Max: v})
	}
	if usage != "-" {
		c.Pod.Memory.WorkingSetBytes = stats.Some(quantity(usage))
	}
	return c
}

func quantity(text string) uint64 {
	q := resource.MustParse(text)
	return uint64(q.Value())
}

func names(candidates []Candidate) string {
	var out []string
	for _, c := range candidates {
		out = append(out, c.Pod.PodRef.Name)
	}
	return strings.Join(out, " ")
}

// The kubelet's own tables for memory, and what it has no order for.
func TestMemoryRanking(t *testing.T) {
	for _, c := range []struct {
		id   string
		pods []Candidate // in the expected order
	}{
		{"C01", []Candidate{pod("exceeds", 0, "100Mi", "101Mi"), pod("below", 0, "200Mi", "199Mi")}},
		// C02 orders by usage minus request alone; with the full keys, those within their request come after.
		{"C02", []Candidate{
			pod("C", 0, "100Mi", "800Mi"), pod("A", 0, "0", "500Mi"), pod("B", 0, "0", "300Mi"),
			pod("D", 0, "100Mi", "300Mi"), pod("E", 0, "1Gi", "800Mi"), pod("F", 0, "1Gi", "200Mi"),
		}},
		{"C03", []Candidate{
			pod("p1", -1, "0", "500Mi"), pod("p2", -1, "0", "50Mi"), pod("p3", 1, "100Mi", "600Mi"), pod("p4", 1, "100Mi", "150Mi"),
			pod("p5", -1, "1Gi", "800Mi"), pod("p6", -1, "1Gi", "200Mi"), pod("p7", 1, "1Gi", "800Mi"), pod("p8", 1, "1Gi", "200Mi"),
		}},
		{"C10", []Candidate{pod("low", -134, "0", "1Mi"), pod("mid", 1, "0", "1Mi"), pod("high", 12534, "0", "1Mi")}},
		// Weakness 6: the kubelet evicts a pod without stats before every other one.
		{"unmeasured pods are never preferred", []Candidate{pod("hog", 1000, "0", "10Gi"), pod("unmeasured", -1, "0", "-")}},
		{"an unknown request is between over and within", []Candidate{
			pod("over", 0, "1Mi", "2Mi"), pod("unknown", 0, "-", "900Mi"), pod("within", 0, "1Gi", "900Mi"),
		}},
	} {
		for _, shuffle := range []func([]Candidate){func([]Candidate) {}, slices.Reverse[[]Candidate]} {
			got := slices.Clone(c.pods)
			shuffle(got)
			rank(got, memoryRanking)
			if names(got) != names(c.pods) {
				t.Errorf("%s: got %s, want %s", c.id, names(got), names(c.pods))
			}
		}
	}
}

// Weakness 31: among equals the kubelet has no order; here QoS, then the youngest, then the UID decide.
func TestEqualsHaveAnOrder(t *testing.T) {
	with := func(name string, qos stats.QOSClass, start int64) Candidate {
		c := pod(name, 0, "0", "1Mi")
		c.Pod.QOSClass, c.Pod.StartTime = qos, time.Unix(start, 0)
		return c
	}
	want := []Candidate{
		with("b", stats.BestEffort, 20), with("a", stats.BestEffort, 10), with("c", stats.BestEffort, 10),
		with("d", stats.Burstable, 30), with("e", stats.Guaranteed, 40),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	decidedBy := rank(got, memoryRanking)
	if names(got) != names(want) {
		t.Errorf("got %s, want %s", names(got), names(want))
	}
	if wantKeys := []string{"", "youngest", "UID", "QoS", "QoS"}; !slices.Equal(decidedBy, wantKeys) {
		t.Errorf("decided by %q, want %q", decidedBy, wantKeys)
	}
}

// naive says the rule in one breath, for pods whose requests and usages are known.
func naive(a, b *Candidate) bool {
	use := func(c *Candidate) int64 { return int64(c.Pod.Memory.WorkingSetBytes.V) }
	req := func(c *Candidate) int64 { return int64(c.Pod.MemoryRequest.V.Max) }
	if over := use(a) > req(a); over != (use(b) > req(b)) {
		return over
	}
	if a.Priority.V != b.Priority.V {
		return a.Priority.V < b.Priority.V
	}
	return use(a)-req(a) > use(b)-req(b)
}

// Against the naive version, and: the order is total, so it does not depend on the order of the pods.
func TestRankingHoldsForAnyPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "pods")
		var pods []Candidate
		for i := range n {
			c := pod(string(rune('a'+i)), rapid.Int32Range(-2, 2).Draw(t, "priority"), "0", "0")
			c.Pod.MemoryRequest.V.Max = rapid.Uint64Range(0, 4).Draw(t, "request")
			c.Pod.Memory.WorkingSetBytes.V = rapid.Uint64Range(0, 4).Draw(t, "usage")
			pods = append(pods, c)
		}
		got := slices.Clone(pods)
		rank(got, memoryRanking)
		for i := 1; i < len(got); i++ {
			if naive(&got[i], &got[i-1]) {
				t.Fatalf("%s goes before %s", got[i-1].Pod.PodRef.Name, got[i].Pod.PodRef.Name)
			}
		}
		again := rapid.Permutation(pods).Draw(t, "shuffled")
		rank(again, memoryRanking)
		if names(got) != names(again) {
			t.Fatalf("another order of the same pods: %s and %s", names(got), names(again))
		}
	})
}
