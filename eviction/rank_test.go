package eviction

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"jettison/stats"
)

// pod returns a candidate for memory: priority, request and working set as quantities; "-" is
// absent.
func pod(name string, priority int32, request, usage string) Candidate {
	c := Candidate{Pod: &stats.PodStats{PodRef: stats.PodReference{Namespace: "default", Name: name, UID: name}, Announced: true}}
	c.Keys = Keys{Priority: stats.Some(priority), Requests: true, kind: kindMemory}
	if request != "-" {
		c.Keys.Request = stats.Some(stats.ExactRange(quantity(request)))
	}
	if usage != "-" {
		c.Keys.Usage, c.Keys.Measured = quantity(usage), true
	}
	return c
}

// podWithoutRequest returns a candidate for a signal that cannot be requested.
func podWithoutRequest(name string, priority int32, usage string) Candidate {
	c := pod(name, priority, "-", usage)
	c.Keys.Requests, c.Keys.kind = false, kindPID
	return c
}

func quantity(text string) uint64 { return uint64(max(parsedValue(text), 0)) }

func parsed(text string) resource.Quantity { return resource.MustParse(text) }

func parsedValue(text string) int64 {
	q := parsed(text)
	return q.Value()
}

func names(ranked []Ranked) string {
	var out []string
	for _, c := range ranked {
		out = append(out, c.Pod.PodRef.Name)
	}
	return strings.Join(out, " ")
}

// The kubelet's own tables, each in the expected order, and cases that it does not order. Disk rows
// are the sum of root, logs and volumes; testdata/disk.txt checks that sum.
func TestRanking(t *testing.T) {
	p, a := pod, podWithoutRequest
	full := func(kind kind) []Candidate {
		out := []Candidate{
			p("p1", -1, "0", "500Mi"), p("p2", -1, "0", "50Mi"), p("p3", 1, "100Mi", "600Mi"), p("p4", 1, "100Mi", "150Mi"),
			p("p5", -1, "1Gi", "800Mi"), p("p6", -1, "1Gi", "200Mi"), p("p7", 1, "1Gi", "800Mi"), p("p8", 1, "1Gi", "200Mi"),
		}
		for i := range out {
			out[i].Keys.kind = kind
		}
		return out
	}
	for _, c := range []struct {
		id   string
		pods []Candidate // in the expected order
	}{
		{"C01, C06", []Candidate{p("exceeds", 0, "100Mi", "101Mi"), p("below", 0, "200Mi", "199Mi")}},
		// C01 gives exceeds the higher priority: usage over request counts before it.
		{"C01", []Candidate{p("exceeds", 1, "100Mi", "101Mi"), p("below", -1, "200Mi", "199Mi")}},
		// C02, C04 order by usage minus request alone; with the full keys, pods within their request
		// come after.
		{"C02", []Candidate{
			p("C", 0, "100Mi", "800Mi"), p("A", 0, "0", "500Mi"), p("B", 0, "0", "300Mi"),
			p("D", 0, "100Mi", "300Mi"), p("E", 0, "1Gi", "800Mi"), p("F", 0, "1Gi", "200Mi"),
		}},
		{"C03", full(kindMemory)},
		{"C04", []Candidate{
			p("P1", 0, "0", "300Mi"), p("P3", 0, "100Mi", "350Mi"), p("P2", 0, "0", "100Mi"),
			p("P4", 0, "100Mi", "110Mi"), p("P5", 0, "400Mi", "375Mi"), p("P6", 0, "400Mi", "120Mi"),
		}},
		{"C05", full(kindBytes)},
		{"C07", []Candidate{p("high", 0, "0", "400000"), p("medium", 0, "0", "300000"), p("low", 0, "0", "200000")}},
		{"C08", []Candidate{p("a", -1, "0", "400000"), p("b", -1, "0", "100000"), p("c", 1, "0", "350000"), p("d", 1, "0", "150000")}},
		{"C09", []Candidate{a("a", -1, "20"), a("b", -1, "6"), a("c", 1, "20"), a("d", 1, "5")}},
		{"C10", []Candidate{p("low", -134, "0", "1Mi"), p("mid", 1, "0", "1Mi"), p("high", 12534, "0", "1Mi")}},
		// C11: for two unmeasured pods only the keys for equals decide.
		{"C11", []Candidate{p("a", 0, "0", "-"), p("b", 0, "1Gi", "-")}},
		// Weakness 6: the kubelet evicts a pod without stats before every other one.
		{"unmeasured pods are never preferred", []Candidate{p("hog", 1000, "0", "10Gi"), p("unmeasured", -1, "0", "-")}},
		{"an unknown request is between over and within", []Candidate{
			p("over", 0, "1Mi", "30Mi"), p("unknown", 0, "-", "900Mi"), p("within", 0, "1Gi", "900Mi"),
		}},
		{"unless it may be over by 32 times as much", []Candidate{
			p("unknown", 0, "-", "960Mi"), p("over", 0, "1Mi", "31Mi"), p("within", 0, "1Gi", "900Mi"),
		}},
	} {
		for _, shuffle := range []func([]Candidate){func([]Candidate) {}, slices.Reverse[[]Candidate]} {
			pods, want := slices.Clone(c.pods), []string{}
			for _, c := range c.pods {
				want = append(want, c.Pod.PodRef.Name)
			}
			shuffle(pods)
			if got := names(rank(pods)); got != strings.Join(want, " ") {
				t.Errorf("%s: ranking = %s, want %s", c.id, got, want)
			}
		}
	}
}

// Weakness 31: the kubelet has no order among equals; here QoS, then the youngest, then the UID
// decide.
func TestEqualsHaveAnOrder(t *testing.T) {
	with := func(name string, qos stats.QOSClass, start int64) Candidate {
		c := pod(name, 0, "0", "1Mi")
		c.Keys.QOSClass, c.Keys.Start = qos, time.Unix(start, 0)
		return c
	}
	pods := []Candidate{
		with("e", stats.Guaranteed, 40), with("d", stats.Burstable, 30), with("c", stats.BestEffort, 10),
		with("a", stats.BestEffort, 10), with("b", stats.BestEffort, 20),
	}
	got := rank(pods)
	if names(got) != "b a c d e" {
		t.Errorf("ranking = %s, want b a c d e", names(got))
	}
	var keys []string
	for _, r := range got {
		keys = append(keys, r.DecidedBy)
	}
	if want := []string{"", "youngest", "UID", "QoS", "QoS"}; !slices.Equal(keys, want) {
		t.Errorf("decided by %q, want %q", keys, want)
	}
}

// With ByRelease the amount that killing returns replaces usage above request, after the request
// and the priority.
func TestRankingByRelease(t *testing.T) {
	with := func(name string, priority int32, usage, release string) Candidate {
		c := pod(name, priority, "1Mi", usage)
		c.Keys.Release = stats.Some(quantity(release))
		return c
	}
	pods := []Candidate{with("cache", 0, "900Mi", "10Mi"), with("anon", 0, "500Mi", "490Mi"), with("low", -1, "20Mi", "1Mi")}
	if got := names(rank(pods)); got != "low anon cache" {
		t.Errorf("ranking by release = %s, want low anon cache", got)
	}
}

// naiveKeys states the rule directly: the keys, most important first. The number of earlier
// evictions does not count.
func naiveKeys(c *Candidate) []any {
	k := c.Keys
	over, excess, release := 1, 0.0, 0.0
	if k.Measured {
		excess = float64(k.Usage) - float64(k.Request.V.Min)
		if k.Requests && k.Request.OK && k.Usage <= k.Request.V.Min {
			over, excess = 2, float64(k.Usage)-float64(k.Request.V.Max)
		} else if k.Requests && k.Request.OK && k.Usage > k.Request.V.Max {
			over, excess = 0, float64(k.Usage)-float64(k.Request.V.Max)
		}
	}
	if k.Release.OK {
		release = float64(k.Release.V)
	}
	qos := map[stats.QOSClass]int{stats.BestEffort: 0, stats.Burstable: 1, "": 2, stats.Guaranteed: 3}
	return []any{k.SetAside, !k.Measured, !(k.Dying && k.eases), over, int(k.Priority.V), -release, -excess, qos[k.QOSClass], -int(k.Start.Unix()), c.Pod.PodRef.UID}
}

// naiveLess compares naiveKeys element by element: false before true, smaller before larger.
func naiveLess(a, b []any) bool {
	for i := range a {
		var order int
		switch x := a[i].(type) {
		case bool:
			order = compareBool(b[i].(bool), x)
		case int:
			order = cmp.Compare(x, b[i].(int))
		case float64:
			order = cmp.Compare(x, b[i].(float64))
		case string:
			order = cmp.Compare(x, b[i].(string))
		}
		if order != 0 {
			return order < 0
		}
	}
	return false
}

// The order equals the naive one, whatever the order of the input.
func TestRankingHoldsForAnyPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "pods")
		requests, released := rapid.Bool().Draw(t, "requests count"), rapid.Bool().Draw(t, "by release")
		some := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
		var pods []Candidate
		for i := range n {
			c := pod(string(rune('a'+i)), rapid.Int32Range(-2, 2).Draw(t, "priority"), "0", "0")
			k := &c.Keys
			k.Requests, k.Request = requests, stats.Opt[stats.Range]{}
			if requests && !some("no request") {
				least := rapid.Uint64Range(0, 4).Draw(t, "request")
				k.Request = stats.Some(stats.Range{Min: least, Max: least + rapid.Uint64Range(0, 2).Draw(t, "more")})
			}
			k.Usage, k.Measured = rapid.Uint64Range(0, 4).Draw(t, "usage"), !some("not measured")
			if released {
				k.Release = stats.Opt[uint64]{V: rapid.Uint64Range(0, 2).Draw(t, "release"), OK: true}
			}
			k.SetAside, k.Dying, k.eases, k.TimesEvicted = some("aside"), some("dying"), rapid.Bool().Draw(t, "eases"), rapid.IntRange(0, 2).Draw(t, "returned")
			k.QOSClass = rapid.SampledFrom([]stats.QOSClass{"", stats.BestEffort, stats.Burstable, stats.Guaranteed}).Draw(t, "qos")
			k.Start = time.Unix(rapid.Int64Range(0, 2).Draw(t, "start"), 0)
			pods = append(pods, c)
		}
		got := rank(pods)
		for i := 1; i < len(got); i++ {
			if a, b := &got[i-1].Candidate, &got[i].Candidate; !naiveLess(naiveKeys(a), naiveKeys(b)) {
				t.Fatalf("ranking has %v before %v, want the naive order", naiveKeys(a), naiveKeys(b))
			}
		}
		if shuffled := rank(rapid.Permutation(pods).Draw(t, "shuffled")); names(got) != names(shuffled) {
			t.Fatalf("ranking depends on the input order: %s and %s", names(got), names(shuffled))
		}
	})
}

// A pod that may be over its request is no victim before one that certainly is, and no small pod is
// evicted before it for bytes: with its request open above, within closed bounds, or unknown.
func TestAnOpenRequestIsNoShelter(t *testing.T) {
	open := func(name string, priority int32, least, usage string) Candidate {
		c := pod(name, priority, least, usage)
		c.Keys.Request.V.Max, c.Keys.Open = quantity("64Gi"), true
		return c
	}
	closed := open("closed", 0, "1Gi", "40Gi")
	closed.Keys.Open = false
	aside := pod("aside", 0, "0", "1Mi")
	aside.Keys.SetAside = true
	dying := pod("dying", 0, "0", "1Mi")
	dying.Keys.Dying, dying.Keys.eases = true, true
	for _, c := range []struct {
		what string
		pods []Candidate // in the expected order
		keys string
	}{
		{"small ones behind it", []Candidate{open("hog", 0, "49Mi", "7Gi"), pod("a", 0, "0", "3Mi"), pod("b", 0, "0", "2Mi")},
			"possible excess, usage - request"},
		{"a clear one before it", []Candidate{pod("leaker", 0, "0", "1Gi"), open("hog", 0, "49Mi", "7Gi"), pod("a", 0, "0", "3Mi")},
			"over request, possible excess"},
		{"it may be within its request", []Candidate{pod("leaker", 0, "0", "1Gi"), open("innocent", 0, "64Mi", "2Gi")}, "over request"},
		{"a clear one of higher priority, too", []Candidate{pod("leaker", 9, "0", "1Gi"), open("innocent", 0, "64Mi", "2Gi")}, "over request"},
		{"lower priority first, also before a pod certainly over its request", []Candidate{pod("low", -1, "0", "1Mi"), open("hog", 0, "0", "7Gi")}, "over request"},
		{"of two the one that may be over by more", []Candidate{open("more", 0, "49Mi", "7Gi"), open("less", 0, "49Mi", "5Gi"), pod("a", 0, "0", "3Mi")},
			"usage - request, possible excess"},
		{"within it for sure", []Candidate{pod("a", 0, "0", "3Mi"), open("within", 0, "1Gi", "900Mi")}, "over request"},
		{"between two bounds that were seen", []Candidate{closed, pod("a", 0, "0", "3Mi")}, "possible excess"},
		{"but with more doubt", []Candidate{pod("leaker", 0, "0", "2Gi"), closed}, "over request"},
		{"nothing is known of it", []Candidate{pod("leaker", 0, "0", "2Gi"), pod("unknown", 0, "-", "40Gi"), pod("a", 0, "0", "3Mi")},
			"over request, possible excess"},
		{"unmeasured pod", []Candidate{pod("a", 0, "0", "3Mi"), pod("unmeasured", 0, "-", "-")}, "measured"},
		{"undying pod still last, terminating pod first", []Candidate{dying, open("hog", 0, "0", "7Gi"), aside}, "dying, set aside"},
	} {
		for _, shuffle := range []func([]Candidate){func([]Candidate) {}, slices.Reverse[[]Candidate]} {
			pods := slices.Clone(c.pods)
			var want, keys []string
			for _, p := range pods {
				want = append(want, p.Pod.PodRef.Name)
			}
			shuffle(pods)
			got := rank(pods)
			for _, r := range got[1:] {
				keys = append(keys, r.DecidedBy)
			}
			if names(got) != strings.Join(want, " ") || strings.Join(keys, ", ") != c.keys {
				t.Errorf("%s: ranking %s by %q, want %q by %s", c.what, names(got), keys, want, c.keys)
			}
		}
	}
}

// For any pods: those that may be over their request change nothing among the others. None comes
// after a pod of its priority or a higher one that it outweighs. If one comes before a pod over its
// request, it outweighs the first such pod behind it.
func TestOpenRequestsMoveForAnyPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pods []Candidate
		for i := range rapid.IntRange(0, 10).Draw(t, "pods") {
			c := pod(string(rune('a'+i)), rapid.Int32Range(-1, 1).Draw(t, "priority"), "0", "0")
			k := &c.Keys
			k.Usage, k.SetAside = rapid.Uint64Range(0, 400).Draw(t, "usage"), rapid.IntRange(0, 5).Draw(t, "aside") == 0
			k.Request.V.Min = rapid.Uint64Range(0, 30).Draw(t, "request")
			switch k.Request.V.Max = k.Request.V.Min; rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1:
				k.Request.V.Max, k.Open = 2000, true
			case 2:
				k.Request.V.Max = 2000
			case 3:
				k.Request = stats.Opt[stats.Range]{}
			}
			pods = append(pods, c)
		}
		got := rank(pods)
		if shuffled := rank(rapid.Permutation(pods).Draw(t, "shuffled")); names(got) != names(shuffled) {
			t.Fatalf("ranking depends on the input order: %s and %s", names(got), names(shuffled))
		}
		for i := range pods {
			leader := (&lists{eligible: pods}).leader()
			if order, _ := compare(leader, &pods[i]); order > 0 {
				t.Fatalf("first unpromoted pod = %s, want %s, which ranks before it", leader.Pod.PodRef.Name, pods[i].Pod.PodRef.Name)
			}
		}
		unsure := func(c Candidate) bool {
			r := c.Keys.Request
			return !r.OK || c.Keys.Usage > r.V.Min && c.Keys.Usage <= r.V.Max
		}
		var rest []Ranked
		for i, u := range got {
			if !unsure(u.Candidate) {
				rest = append(rest, u)
				continue
			}
			next := true
			for j, o := range got {
				over := o.Keys.Request.OK && o.Keys.Usage > o.Keys.Request.V.Max && o.Keys.SetAside == u.Keys.SetAside
				if !over {
					continue
				}
				doubt := uint64(32)
				if u.Keys.Open {
					doubt = 8
				}
				may := doubt*(o.Keys.Usage-o.Keys.Request.V.Max) <= u.Keys.Usage-u.Keys.Request.V.Min && o.Keys.Priority.V >= u.Keys.Priority.V
				if may && j < i || j > i && next && !may {
					t.Fatalf("ranking %s: wrong order of %s and %s", names(got), u.Pod.PodRef.Name, o.Pod.PodRef.Name)
				}
				next = next && j < i
			}
		}
		if without := rank(slices.DeleteFunc(slices.Clone(pods), unsure)); names(without) != names(rest) {
			t.Fatalf("other pods ranked %s, without the unknown ones %s", names(rest), names(without))
		}
	})
}

func rank(candidates []Candidate) []Ranked { return (&lists{eligible: candidates}).rank() }
