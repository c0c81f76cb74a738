package limits

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/internal/node/cgroupundo"
	"jettison/stats"
	"jettison/stats/read"
)

// containerIn returns the runtime's data of a pod with one container. Score and limit 0 are hidden.
func containerIn(score int64, limit uint64) read.Index {
	index := runs(map[string][]string{"u": {"c"}})
	if score != 0 {
		index["u"].Containers[0].OOMScoreAdj = &score
	}
	if limit != 0 {
		index["u"].Containers[0].MemoryLimit = &limit
	}
	return index
}

// What root's object may claim depends on the runtime's bounds.
func TestPodRequestIsBounded(t *testing.T) {
	const gi = 1 << 30
	burstable, guaranteed := stats.Burstable, stats.Guaranteed
	allocated := func(p *v1.Pod) *v1.Pod {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: p.Spec.Containers[0].Resources.Requests}}
		return p
	}
	for name, c := range map[string]struct {
		class       stats.QOSClass
		object      *v1.Pod
		score       int64 // 0: hidden
		limit       uint64
		want        uint64
		unconfirmed bool
	}{
		"an eighth, as its score says":   {burstable, object("u", "c 1Gi "), 875, 0, gi, false},
		"more than its score says":       {burstable, object("u", "c 7Gi "), 875, 0, 8*gi*126/1000 + 1, true},
		"less than its score says":       {burstable, object("u", "c 1Mi "), 875, 0, 1 << 20, false},
		"its score is hidden":            {burstable, object("u", "c 7Gi "), 0, 0, 7 * gi, false},
		"as much as its limit":           {guaranteed, object("u", "c 1Gi 1Gi"), -997, gi, gi, false},
		"more than its limit":            {guaranteed, object("u", "c 7Gi 7Gi"), -997, gi, gi, true},
		"Guaranteed without a limit":     {guaranteed, object("u", "c 7Gi 7Gi"), -997, 0, 7 * gi, false},
		"allocated, the score is older":  {burstable, allocated(object("u", "c 2Gi ")), 875, 0, 2 * gi, false},
		"the lowest score has no bound":  {burstable, object("u", "c 7Gi "), 3, 0, 7 * gi, false},
		"nothing, as its score says":     {burstable, object("u", "c  "), 999, 0, 0, false},
		"a third container of no status": {burstable, object("u", "c 1Gi ", "later 5Gi "), 875, 0, 8*gi*126/1000 + 1, true},
	} {
		k := Known{Runtime: containerIn(c.score, c.limit), Capacity: some(8 * gi)}
		got := k.pod(stats.PodCgroup{Path: "kubepods/podu", UID: "u", QOSClass: c.class}, c.object, nil, nil)
		if got.Request != some(c.want) || (got.Unconfirmed > 0) != c.unconfirmed {
			t.Errorf("%s: request %+v, unconfirmed %d, want %+v", name, got.Request, got.Unconfirmed, c.want)
		}
	}
}

// A pod with pod-level resources is throttled as the kubelet does (TestApplyPodLevelMemoryHigh,
// TestContainerMemoryHighSkippedWithPodLevelResources), if the runtime confirms its request and the
// kernel its limit.
func TestThrottlingOfPodLevelResources(t *testing.T) {
	const gi = 1 << 30
	for name, c := range map[string]struct {
		spec      string
		kernel    map[string]uint64 // memory.max; 0: unlimited
		pod       stats.Opt[uint64]
		container stats.Opt[uint64] // limits
	}{
		"a limit of the pod": {`{"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}},"containers":[{"name":"c"}]}`,
			map[string]uint64{"kubepods/podu": 2 * gi, "kubepods/podu/u-c": 2 * gi}, some(2 * gi), unknown},
		"with overhead": {`{"overhead":{"memory":"1Gi"},"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}},"containers":[{"name":"c"}]}`,
			map[string]uint64{"kubepods/podu": 3 * gi, "kubepods/podu/u-c": 2 * gi}, some(3 * gi), unknown},
		"and one of the container": {`{"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}},"containers":[{"name":"c","resources":{"limits":{"memory":"1Gi"}}}]}`,
			map[string]uint64{"kubepods/podu": 2 * gi, "kubepods/podu/u-c": gi}, some(2 * gi), some(gi)},
		"limits of all containers": {`{"resources":{"requests":{"cpu":"1"}},"containers":[{"name":"c","resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}}}]}`,
			map[string]uint64{"kubepods/podu": 2 * gi, "kubepods/podu/u-c": 2 * gi}, some(2 * gi), some(2 * gi)},
		"a container without a limit": {`{"resources":{"requests":{"cpu":"1"}},"containers":[{"name":"c","resources":{"requests":{"memory":"1Gi"}}}]}`,
			map[string]uint64{"kubepods/podu": 0, "kubepods/podu/u-c": 0}, unknown, some(0)},
		"without pod-level resources": {`{"resources":{},"containers":[{"name":"c","resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}}}]}`,
			map[string]uint64{"kubepods/podu": 2 * gi, "kubepods/podu/u-c": 2 * gi}, unknown, some(2 * gi)},
		"another limit of the kernel": {`{"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}},"containers":[{"name":"c"}]}`,
			map[string]uint64{"kubepods/podu": 0, "kubepods/podu/u-c": 0}, unknown, unknown},
	} {
		k := Known{Runtime: containerIn(3, 0), Capacity: some(8 * gi)}
		maxOf := func(path string) stats.Opt[cgroup.Limit] { return stats.Some(kernelLimit(c.kernel[path])) }
		p := k.pod(stats.PodCgroup{Path: "kubepods/podu", UID: "u", QOSClass: stats.Burstable}, decoded(t, c.spec),
			[]string{"kubepods/podu/u-c"}, maxOf)
		container := p.Containers[0].Limit
		if !p.Limit.OK {
			p.Limit.V = 0
		}
		if p.Limit != c.pod || container != c.container {
			t.Errorf("%s: confirmed limits of pod and container = %+v, %+v, want %+v, %+v", name, p.Limit, container, c.pod, c.container)
		}
	}
}

// Whatever a member of the socket's group claims, the agent writes what it writes without the object. The
// runtime confirms each of these claims in part: the pod has two containers with a score of 1 GiB each, which
// may be one request (of an init container and its sidecar), and the kernel limits both and the pod.
func TestMemberClaimsNothing(t *testing.T) {
	const gi = 1 << 30
	index := runs(map[string][]string{"u": {"c", "side"}})
	score, limit := int64(875), uint64(2*gi)
	for i := range index["u"].Containers {
		index["u"].Containers[i].OOMScoreAdj, index["u"].Containers[i].MemoryLimit = &score, &limit
	}
	maxOf := func(path string) stats.Opt[cgroup.Limit] {
		return stats.Some(kernelLimit(map[string]uint64{"kubepods/podu": 4 * gi, "kubepods/podu/u-c": limit, "kubepods/podu/u-side": limit}[path]))
	}
	plan := func(members map[string]bool, object *v1.Pod) (Pod, Settings) {
		k := Known{Runtime: index, Capacity: some(8 * gi), Members: members}
		p := k.pod(stats.PodCgroup{Path: "kubepods/podu", UID: "u", QOSClass: stats.Burstable}, object, []string{"kubepods/podu/u-c", "kubepods/podu/u-side"}, maxOf)
		return p, Plan([]Pod{p}, Budget{Allocatable: 7 * gi, Factor: 0.9, Page: 4096})
	}
	_, want := plan(nil, nil)
	for name, spec := range map[string]string{
		"the sum of both":           `{"containers":[{"name":"c","resources":{"requests":{"memory":"1Gi"}}},{"name":"side","resources":{"requests":{"memory":"1Gi"}}}]}`,
		"a limit of the pod":        `{"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"4Gi"}},"containers":[{"name":"c"},{"name":"side"}]}`,
		"throttling":                `{"containers":[{"name":"c","resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}}}]}`,
		"no request of a container": `{"containers":[{"name":"c","resources":{"requests":{"memory":"1Gi"}}},{"name":"side"}]}`,
		"other containers":          `{"containers":[{"name":"ghost","resources":{"requests":{"memory":"1Gi"}}}]}`,
		"all as init containers":    `{"initContainers":[{"name":"c","resources":{"requests":{"memory":"1Gi"}}}],"containers":[{"name":"side"}]}`,
		"overhead":                  `{"overhead":{"memory":"1Gi"},"containers":[{"name":"c"},{"name":"side"}]}`,
		"a class":                   `{"containers":[]},"status":{"qosClass":"Guaranteed"}`,
		"a priority":                `{"priority":2000001000,"containers":[{"name":"c","resources":{"requests":{"memory":"7Gi"}}}]}`,
	} {
		p, got := plan(map[string]bool{"u": true}, decoded(t, spec))
		if diff := cmp.Diff(want, got); diff != "" || p.Unconfirmed > 0 {
			t.Errorf("%s: a member's object changes the settings (-want +got), unconfirmed %d:\n%s", name, p.Unconfirmed, diff)
		}
	}
}

// For any objects and any data of the runtime and the kernel: a member's object changes nothing, and
// another one protects at most the runtime's upper bound. A container is throttled only below a limit
// that the kernel has too. All pods together get at most node allocatable.
func TestPlanNeedsConfirmation(t *testing.T) {
	const capacity = 8 << 30
	amount := func(t *rapid.T, name string) uint64 {
		return rapid.SampledFrom([]uint64{0, 1 << 20, 1e9, 1 << 30, 7 << 30, capacity, 1 << 40}).Draw(t, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		b := Budget{Allocatable: 7 << 30, Factor: rapid.Float64Range(0.01, 1).Draw(t, "factor"), Page: 4096}
		k := Known{Capacity: some(capacity), Members: map[string]bool{}, Runtime: read.Index{}}
		var pods []Pod
		shown, kernel := map[string]stats.Opt[stats.Range]{}, map[string]stats.Opt[cgroup.Limit]{}
		limits := map[string]uint64{}
		for i := range rapid.IntRange(1, 6).Draw(t, "pods") {
			uid := fmt.Sprint("p", i)
			class := rapid.SampledFrom([]stats.QOSClass{stats.Guaranteed, stats.Burstable, stats.BestEffort}).Draw(t, "class")
			p := stats.PodCgroup{Path: "kubepods/pod" + uid, UID: uid, QOSClass: class}
			o, l := object(uid), cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: uid, Name: uid, Namespace: "default", Ready: true}}}
			var below []string
			for j := range rapid.IntRange(1, 3).Draw(t, "containers") {
				name, path := fmt.Sprint("c", j), fmt.Sprintf("%s/%s-c%d", p.Path, uid, j)
				below, limits[path] = append(below, path), amount(t, "limit")
				list := func(v uint64) v1.ResourceList {
					return v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(int64(v), resource.BinarySI)}
				}
				o.Spec.Containers = append(o.Spec.Containers, v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list(amount(t, "request")), Limits: list(limits[path])}})
				c := cri.Container{ID: uid + "-" + name, SandboxID: "s", Name: name, State: cri.Running, Running: true}
				if score := rapid.SampledFrom([]int64{-1, -997, 3, 500, 875, 999, 1000}).Draw(t, "score"); score != -1 {
					c.OOMScoreAdj = &score
				}
				if limit := amount(t, "runtime's limit"); limit > 0 {
					c.MemoryLimit = &limit
				}
				l.Containers = append(l.Containers, c)
				switch rapid.IntRange(0, 3).Draw(t, "kernel") {
				case 0:
					kernel[path] = stats.Some(cgroup.Limit{Unlimited: true})
				case 1:
					kernel[path] = stats.Some(cgroup.Limit{Bytes: amount(t, "kernel's limit")})
				case 2:
					kernel[path] = stats.Some(cgroupundo.Cut(cgroup.FileMemoryMax, cgroup.Limit{Bytes: limits[path]}))
				}
			}
			if rapid.Bool().Draw(t, "listed") {
				k.Runtime[uid] = read.NewIndex(l)[uid]
				shown[p.Path] = k.Runtime[uid].MemoryRequest(class, k.Capacity)
			}
			k.Members[uid] = rapid.Bool().Draw(t, "member")
			maxOf := func(path string) stats.Opt[cgroup.Limit] { return kernel[path] }
			pods = append(pods, k.pod(p, o, below, maxOf))
			if diff := cmp.Diff(k.pod(p, nil, below, maxOf), pods[i]); k.Members[uid] && diff != "" {
				t.Fatalf("pod with a member's object (-without +with):\n%s", diff)
			}
		}
		s, total := Plan(pods, b), uint64(0)
		for _, p := range pods {
			file, _ := protectionOf(p.QOSClass)
			own, bounds := s[p.Cgroup][file].Bytes, shown[p.Cgroup]
			total += own
			if bounds.OK && own > bounds.V.Max {
				t.Fatalf("%s %s = %d, want at most the runtime's %+v", p.Cgroup, file, own, bounds)
			}
			for _, c := range p.Containers {
				high, ok := s[c.Cgroup][cgroup.FileMemoryHigh]
				if !ok {
					continue
				}
				has, limit := kernel[c.Cgroup], limits[c.Cgroup]
				if p.QOSClass == stats.BestEffort { // whatever its object has
					limit = 0
				}
				if !has.OK || has.V.Unlimited != (limit == 0) || !has.V.Unlimited && (limit-has.V.Bytes >= 4096 || high.Bytes > has.V.Bytes) {
					t.Fatalf("%s memory.high = %d, object's limit %d, memory.max %+v", c.Cgroup, high.Bytes, limit, has)
				}
			}
		}
		top := s["kubepods"]
		if sum := top[cgroup.FileMemoryMin].Bytes + top[cgroup.FileMemoryLow].Bytes; total > b.Allocatable || sum != total {
			t.Fatalf("kubepods protects %d, its pods %d, want at most %d", sum, total, b.Allocatable)
		}
	})
}
