package podindex

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"jettison/cri"
	"jettison/stats"
)

// node runs a pod like a kubelet and a runtime, as far as its request shows.
type node struct {
	pod      *v1.Pod
	qos      stats.QOSClass
	capacity int64
	critical bool
	listing  cri.Listing
	clock    time.Time
	seen     int64 // thousandths of a core requested by the containers seen
	all      bool  // every container of the spec was seen
	alive    bool  // one container is alive
}

const unitMemory = 1 << 20

func (n *node) memory(name v1.ResourceName, list v1.ResourceList) int64 {
	q := list[name]
	return q.Value()
}

// draw creates a pod that fits the node: any kinds of containers, requests and limits,
// overhead, pod-level resources.
func (n *node) draw(t *rapid.T) {
	n.capacity = rapid.Int64Range(1<<30, 1<<40).Draw(t, "capacity")
	flip := func(what string) bool { return rapid.Bool().Draw(t, what) }
	part := n.capacity / 8
	// Requests are equal often, as with a LimitRange, and often small next to others.
	asks := rapid.OneOf(rapid.SampledFrom([]int64{0, 64 * unitMemory, part / 16, part / 2}), rapid.Int64Range(0, part))
	guaranteed, bare := flip("guaranteed"), rapid.IntRange(0, 9).Draw(t, "bare") == 0
	container := func(name string) v1.Container {
		c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}}
		if bare {
			return c
		}
		memory, milli := asks.Draw(t, "memory"), rapid.SampledFrom([]int64{0, 1, 2, 100, 100, 250}).Draw(t, "cpu")
		r := &c.Resources
		if memory > 0 {
			r.Requests[v1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
			if guaranteed || flip("limited") {
				limit := memory
				if !guaranteed {
					limit += rapid.SampledFrom([]int64{0, part / 4}).Draw(t, "burst")
				}
				r.Limits[v1.ResourceMemory] = *resource.NewQuantity(limit, resource.BinarySI)
			}
		}
		if milli > 0 {
			r.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
			if guaranteed {
				r.Limits[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
			}
		}
		return c
	}
	p := &v1.Pod{}
	always := v1.ContainerRestartPolicyAlways
	for i := range rapid.IntRange(0, 4).Draw(t, "init containers") {
		c := container(fmt.Sprint("init", i))
		if flip("sidecar") {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprint("c", i)))
	}
	if rapid.IntRange(0, 4).Draw(t, "pod level") == 0 && !bare {
		sum := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
		more := *resource.NewQuantity(sum.Memory().Value()+rapid.Int64Range(0, 2*part).Draw(t, "of the pod"), resource.BinarySI)
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: more}}
	}
	if rapid.IntRange(0, 4).Draw(t, "overhead") == 0 {
		p.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(120*unitMemory, resource.BinarySI)}
	}
	n.pod, n.qos, n.critical = p, stats.QOSOf(p), rapid.IntRange(0, 19).Draw(t, "critical") == 0
	if n.request() > n.capacity {
		t.Skip("the pod does not fit the node")
	}
}

// request returns the true request.
func (n *node) request() int64 {
	return n.memory(v1.ResourceMemory, resourcehelper.PodRequests(n.pod, resourcehelper.PodResourcesOptions{}))
}

func restarts0(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// score returns the kubelet's score of a container of the pod (v1.37 pkg/kubelet/qos/policy.go
// GetContainerOOMScoreAdjust); sidecar: it is a restartable init container.
func (n *node) score(c *v1.Container, sidecar bool) int64 {
	switch {
	case n.critical || n.qos == stats.Guaranteed:
		return OOMScoreAdjGuaranteed
	case n.qos == stats.BestEffort:
		return oomScoreAdjBestEffort
	}
	asks, spread := c.Resources.Requests.Memory().Value(), int64(0)
	if resourcehelper.IsPodLevelRequestsSet(n.pod) && !n.pod.Spec.Resources.Requests.Memory().IsZero() {
		sum := resourcehelper.AggregateContainerRequests(n.pod, resourcehelper.PodResourcesOptions{})
		spread = n.pod.Spec.Resources.Requests.Memory().Value() - sum.Memory().Value()
		spread /= int64(len(n.pod.Spec.Containers) + len(n.pod.Spec.InitContainers))
	}
	if sidecar {
		least := n.pod.Spec.Containers[0].Resources.Requests.Memory().Value()
		for i := range n.pod.Spec.Containers {
			least = min(least, n.pod.Spec.Containers[i].Resources.Requests.Memory().Value())
		}
		asks = max(asks, least)
	}
	return kubeletOOMScoreAdj(asks+spread, n.capacity)
}

func shares(milli int64) *uint64 { // kubelet MilliCPUToShares
	out := uint64(max(milli*1024/1000, 2))
	return &out
}

func some(v int64) *uint64 {
	if v == 0 {
		return nil
	}
	out := uint64(v)
	return &out
}

// run adds a container in a state, and now and then a dead predecessor.
func (n *node) run(t *rapid.T, c *v1.Container, sidecar bool, state cri.ContainerState) {
	n.clock = n.clock.Add(time.Second)
	score := n.score(c, sidecar)
	one := cri.Container{ID: c.Name, Name: c.Name, SandboxID: "s", State: state, Running: state == cri.Running, CreatedAt: n.clock, OOMScoreAdj: &score,
		CPUShares: shares(c.Resources.Requests.Cpu().MilliValue()), MemoryLimit: some(c.Resources.Limits.Memory().Value())}
	n.seen += c.Resources.Requests.Cpu().MilliValue()
	n.alive = n.alive || state != cri.Exited
	if rapid.IntRange(0, 5).Draw(t, "restarted") == 0 {
		old := one
		old.ID, old.State, old.Running, old.CreatedAt = c.Name+"-old", cri.Exited, false, n.clock.Add(-time.Hour)
		n.listing.Containers = append(n.listing.Containers, old)
	}
	n.listing.Containers = append(n.listing.Containers, one)
}

// live draws the progress of the pod, and the runtime's data at that point.
func (n *node) live(t *rapid.T, told bool) {
	n.clock = time.Unix(1e9, 0)
	sandbox := cri.PodSandbox{ID: "s", UID: "u", Ready: true, CreatedAt: n.clock}
	if n.pod.Spec.Overhead != nil {
		sandbox.RuntimeHandler = "vm"
	}
	if told {
		without := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
		requests, limits := resourcehelper.PodRequests(n.pod, without), resourcehelper.PodLimits(n.pod, without)
		sandbox.CPUShares, sandbox.MemoryLimit = shares(requests.Cpu().MilliValue()), some(limits.Memory().Value())
		overhead := uint64(n.pod.Spec.Overhead.Memory().Value())
		sandbox.Overhead = &overhead
	}
	n.listing.Sandboxes = []cri.PodSandbox{sandbox}
	state := func(what string, of ...cri.ContainerState) cri.ContainerState {
		return rapid.SampledFrom(of).Draw(t, what)
	}
	if rapid.IntRange(0, 9).Draw(t, "debugged") == 0 { // an ephemeral container has a score but no request
		n.run(t, &v1.Container{Name: "debug"}, false, cri.Running)
	}
	inits := len(n.pod.Spec.InitContainers)
	reached := rapid.IntRange(0, inits).Draw(t, "init containers done")
	for i := range n.pod.Spec.InitContainers {
		c := &n.pod.Spec.InitContainers[i]
		switch sidecar := restarts0(c); {
		case i > reached:
			return
		case sidecar:
			n.run(t, c, true, state("sidecar", cri.Running, cri.Running, cri.Running, cri.Exited))
		case i < reached:
			n.run(t, c, false, cri.Exited)
		default:
			n.run(t, c, false, state("init container", cri.Running, cri.Created, cri.Exited))
			return
		}
	}
	regular := n.pod.Spec.Containers
	started := rapid.SampledFrom([]int{len(regular), len(regular), len(regular) - 1}).Draw(t, "started")
	for i := range regular[:started] {
		n.run(t, &regular[i], false, state("container", cri.Running, cri.Running, cri.Created, cri.Exited))
	}
	n.all = started == len(regular)
}

// tellable reports whether the sandbox was reported, and has more CPU than the containers seen
// request, beyond the error of shares.
func (n *node) tellable(told bool) bool {
	requests := resourcehelper.PodRequests(n.pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	return told && requests.Cpu().MilliValue() > n.seen+3*int64(len(n.listing.Containers)+1)
}

// For any pod that a kubelet runs, at any point, the request is within the range computed from
// the runtime's data. If containers are still to come and no data reveals them, only the lower
// bound is valid: that is the one assumption.
func TestARequestLiesWithinItsBounds(t *testing.T) {
	checked, exact, still := 0, 0, 0
	property := func(t *rapid.T) {
		n := &node{}
		n.draw(t)
		told := rapid.IntRange(0, 4).Draw(t, "told") > 0 || n.qos != stats.Burstable // a Guaranteed pod has its request in its cgroup, a BestEffort one has at most overhead, which does not rank
		n.live(t, told)
		p := New(n.listing)["u"]
		got := p.memoryRequest(n.qos, stats.Some(uint64(n.capacity)))
		if len(n.listing.Containers) == 0 {
			return
		}
		if !got.OK {
			if !n.critical && n.qos == stats.Burstable {
				t.Fatalf("request of a %s pod is unknown: %+v", n.qos, n.listing)
			}
			return
		}
		checked++
		want := uint64(n.request())
		if n.qos == stats.Burstable && n.critical {
			t.Fatalf("score of a critical pod gave a request %+v, want none", got)
		}
		if want < got.V.Min {
			t.Fatalf("%s requests %d, at least %d by its containers: %s", n.qos, want, got.V.Min, n)
		}
		if !n.all && n.alive && !n.tellable(told) {
			still++
			return
		}
		if want > got.V.Max {
			t.Fatalf("%s requests %d, at most %d by its containers: %s", n.qos, want, got.V.Max, n)
		}
		if got.V.Min == got.V.Max {
			exact++
		}
	}
	// A round is 20 pods with -short, of which nearly a third is checked by the lower bound
	// alone: too few to check that share.
	for range 25 {
		rapid.Check(t, property)
	}
	t.Logf("%d pods, %d of them exact, %d checked by the lower bound only", checked, exact, still)
	if checked == 0 || still*2 > checked {
		t.Error("too many pods are checked by the lower bound only")
	}
}

func (n *node) String() string {
	text := fmt.Sprintf("capacity %d, overhead %v, pod %+v", n.capacity, n.pod.Spec.Overhead.Memory(), n.pod.Spec.Resources)
	for _, c := range n.pod.Spec.InitContainers {
		text += fmt.Sprintf("\n%s sidecar=%v %v", c.Name, restarts0(&c), c.Resources)
	}
	for _, c := range n.pod.Spec.Containers {
		text += fmt.Sprintf("\n%s %v", c.Name, c.Resources)
	}
	for _, c := range n.listing.Containers {
		text += fmt.Sprintf("\n%s %s score %d", c.ID, c.State, *c.OOMScoreAdj)
	}
	return text
}
