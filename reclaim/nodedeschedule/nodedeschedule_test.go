package nodedeschedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

var t0 = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func pod(name string, edits ...func(*Pod)) Pod {
	p := Pod{
		PodReference: stats.PodReference{Namespace: "shop", Name: name, UID: "uid-" + name}, QOSClass: stats.Burstable, Owner: "ReplicaSet",
		LocalStorage: stats.Some(false), Since: t0.Add(-48 * time.Hour), Made: t0.Add(-48 * time.Hour), Ready: true,
		Containers: []Container{{Name: "c"}}, Memory: stats.Some[uint64](100),
	}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

func restarts(n uint64) func(*Pod) { return func(p *Pod) { p.Containers[0].Restarts = n } }
func ended(code int32, ago time.Duration) func(*Pod) {
	return func(p *Pod) {
		p.Containers[0].Exited, p.Containers[0].Ended = true, stats.Some(End{Code: code, At: t0.Add(-ago)})
	}
}

// usual returns a policy with all strategies enabled.
func usual() Policy {
	return Policy{
		StaleDuplicates: true, FailedAfter: time.Hour, MaxRestarts: 100, MaxAge: 72 * time.Hour, ShedAbove: 80, MinAge: time.Minute, MaxPods: 100,
	}
}

func names(r Result) (out []string) {
	for _, e := range r.Evictions {
		out = append(out, e.Pod.Name+" "+e.Strategy)
	}
	return out
}

func TestStrategies(t *testing.T) {
	for _, c := range []struct {
		name string
		pods []Pod
		want string
	}{
		{"nothing is wrong", []Pod{pod("a"), pod("b", ended(0, 2*time.Hour))}, ""},
		{"too many restarts, the most first", []Pod{pod("a", restarts(100)), pod("b", restarts(200)), pod("c", restarts(99))},
			"b RemovePodsHavingTooManyRestarts, a RemovePodsHavingTooManyRestarts"},
		{"old, the oldest first", []Pod{
			pod("a", func(p *Pod) { p.Since = t0.Add(-73 * time.Hour) }), pod("b", func(p *Pod) { p.Since = t0.Add(-80 * time.Hour) }),
			pod("unknown", func(p *Pod) { p.Since = time.Time{} }), pod("future", func(p *Pod) { p.Since = t0.Add(time.Hour) }),
		}, "b PodLifeTime, a PodLifeTime"},
		{"failed long ago", []Pod{pod("a", ended(1, time.Hour)), pod("lately", ended(1, time.Minute))}, "a RemoveFailedPods"},
		{"one container runs still", []Pod{pod("a", ended(1, 2*time.Hour), func(p *Pod) { p.Containers = append(p.Containers, Container{Name: "d"}) })}, ""},
		{"unknown end", []Pod{pod("a", func(p *Pod) { p.Containers[0].Exited = true })}, ""},
		{"a stale duplicate", []Pod{
			pod("a", func(p *Pod) {
				p.UID, p.Made, p.Owner, p.LocalStorage = "old", t0.Add(-50*time.Hour), "", stats.Opt[bool]{}
			}), pod("a"),
		}, "a StaleDuplicate"},
		{"the same name elsewhere", []Pod{pod("a"), pod("a", func(p *Pod) { p.UID, p.Namespace = "other", "other" })}, ""},
		{"a duplicate without a ready sandbox", []Pod{pod("a"), pod("a", func(p *Pod) { p.UID, p.Ready = "old", false })}, ""},
	} {
		p := usual()
		if got := strings.Join(names(p.Plan(&Look{Pods: c.pods}, t0)), ", "); got != c.want {
			t.Errorf("evictions in case %q = %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRulesKeepPods(t *testing.T) {
	for reason, edit := range map[string]func(*Pod){
		"static pod":                 func(p *Pod) { p.Protected = "static pod (source file)" },
		"excludeNamespaces":          func(p *Pod) { p.Namespace = "kube-system" },
		"no ready sandbox":           func(p *Pod) { p.Ready = false },
		"recreated after an earlier": func(p *Pod) { p.EvictedBefore = true },
		"its DaemonSet":              func(p *Pod) { p.Owner = "DaemonSet" },
		"no known owner":             func(p *Pod) { p.Owner = "" },
		"local storage is unknown":   func(p *Pod) { p.LocalStorage = stats.Opt[bool]{} },
		"it uses local storage":      func(p *Pod) { p.LocalStorage = stats.Some(true) },
		"its age is unknown":         func(p *Pod) { p.Since = time.Time{} },
		"less than minAge":           func(p *Pod) { p.Since = t0.Add(-30 * time.Second) },
	} {
		p := usual()
		p.ExcludeNamespaces = []string{"kube-system"}
		r := p.Plan(&Look{Pods: []Pod{pod("a", restarts(200), edit)}}, t0)
		if len(r.Evictions) != 0 || len(r.Kept) != 1 || !strings.Contains(r.Kept[0].Reason, reason) {
			t.Errorf("Plan() = %+v, want one pod kept for %q", r, reason)
		}
	}
	// If the newest of two is unknown both stay.
	p := usual()
	r := p.Plan(&Look{Pods: []Pod{pod("a"), pod("a", func(p *Pod) { p.UID, p.Made = "b", time.Time{} })}}, t0)
	if len(r.Evictions) != 0 || len(r.Kept) != 2 {
		t.Errorf("Plan() = %+v, want no eviction and two kept pods", r)
	}
}

func TestShed(t *testing.T) {
	look := &Look{MemoryCapacity: stats.Some[uint64](1000), MemoryInUse: stats.Some[uint64](950), Pods: []Pod{
		pod("small", func(p *Pod) { p.QOSClass = stats.BestEffort }),
		pod("large", func(p *Pod) { p.QOSClass, p.Memory = stats.BestEffort, stats.Some[uint64](110) }),
		pod("burstable", func(p *Pod) { p.Memory = stats.Some[uint64](500) }),
		pod("unmeasured", func(p *Pod) { p.QOSClass, p.Memory = stats.BestEffort, stats.Opt[uint64]{} }),
	}}
	p := usual()
	if got := names(p.Plan(look, t0)); !slices.Equal(got, []string{"large LowNodeUtilization", "small LowNodeUtilization"}) {
		t.Errorf("evictions = %v, want large and small", got)
	}
	look.MemoryInUse = stats.Opt[uint64]{}
	if r := p.Plan(look, t0); len(r.Evictions) != 0 || r.Stopped == "" {
		t.Errorf("Plan() with unknown memory usage = %+v, want Stopped and no eviction", r)
	}
}

func TestLimits(t *testing.T) {
	p := usual()
	p.MaxPods, p.MaxPodsOfNamespace = 2, 1
	look := &Look{Pods: []Pod{pod("a", restarts(300)), pod("b", restarts(200)), pod("c", restarts(150), func(p *Pod) { p.Namespace = "other" }),
		pod("d", restarts(120), func(p *Pod) { p.Namespace = "third" })}}
	r := p.Plan(look, t0)
	if got := names(r); len(got) != 2 || !strings.HasPrefix(got[0], "a ") || !strings.HasPrefix(got[1], "c ") {
		t.Errorf("evictions = %v, want a and c", got)
	}
	if len(r.Kept) != 2 || !strings.Contains(r.Kept[0].Reason+r.Kept[1].Reason, "maxPodsOfNamespace 1") {
		t.Errorf("kept pods = %+v, want two, with the limit as reason", r.Kept)
	}
}

// For random looks each eviction is of a listed pod, is unique and allowed, and limits are
// respected.
func TestPlanInvariants(t *testing.T) {
	for seed := range 2000 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		p := usual()
		p.MaxPods, p.MaxPodsOfNamespace, p.Unowned = r.IntN(5), r.IntN(3), r.IntN(2) == 0
		look := &Look{MemoryCapacity: stats.Some[uint64](1000), MemoryInUse: stats.Opt[uint64]{V: uint64(r.IntN(1100)), OK: r.IntN(4) > 0}}
		for i := range r.IntN(12) {
			look.Pods = append(look.Pods, pod(fmt.Sprint(r.IntN(6)), restarts(uint64(r.IntN(200))), func(p *Pod) {
				p.UID, p.Namespace = fmt.Sprint(i), fmt.Sprint("n", r.IntN(3))
				p.Owner = []string{"", "DaemonSet", "ReplicaSet", "Job"}[r.IntN(4)]
				p.Ready, p.EvictedBefore = r.IntN(4) > 0, r.IntN(8) == 0
				p.Made = t0.Add(-time.Duration(r.IntN(5)) * time.Hour)
				p.Since = t0.Add(-time.Duration(r.IntN(100)) * time.Hour)
				if r.IntN(6) == 0 {
					p.Protected = "static"
				}
				if r.IntN(3) == 0 {
					ended(int32(r.IntN(2)), time.Duration(r.IntN(5))*time.Hour)(p)
				}
			}))
		}
		checkPlan(t, seed, &p, look, p.Plan(look, t0))
	}
}

func checkPlan(t *testing.T, seed int, p *Policy, look *Look, r Result) {
	t.Helper()
	seen, spaces := map[string]bool{}, map[string]int{}
	for _, e := range r.Evictions {
		at := slices.IndexFunc(look.Pods, func(pod Pod) bool { return pod.PodReference == e.Pod })
		if at < 0 || seen[e.Pod.UID] || e.Reason == "" {
			t.Fatalf("seed %d: eviction of an unknown pod, duplicate, or without a reason: %+v", seed, e)
		}
		seen[e.Pod.UID] = true
		spaces[e.Pod.Namespace]++
		pod := &look.Pods[at]
		if pod.Protected != "" || pod.EvictedBefore || !pod.Ready || e.Strategy != StaleDuplicate && (pod.Owner == "DaemonSet" || pod.Owner == "" && !p.Unowned) {
			t.Errorf("seed %d: pod %+v is evicted by %s, want it kept", seed, pod, e.Strategy)
		}
		if p.MaxPodsOfNamespace > 0 && spaces[e.Pod.Namespace] > p.MaxPodsOfNamespace {
			t.Errorf("seed %d: more than %d evictions in namespace %s", seed, p.MaxPodsOfNamespace, e.Pod.Namespace)
		}
	}
	for _, k := range r.Kept {
		if seen[k.Pod.UID] {
			t.Errorf("seed %d: pod %s is listed twice as evicted or kept", seed, k.Pod.UID)
		}
		seen[k.Pod.UID] = true
	}
	if len(r.Evictions) > p.MaxPods {
		t.Errorf("seed %d: evictions = %d, want at most %d", seed, len(r.Evictions), p.MaxPods)
	}
}
