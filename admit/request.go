package admit

import (
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"jettison/stats"
)

type quantity = resource.Quantity

// Amounts holds amounts of resources: cpu in thousandths of a core, all others in bytes or units.
// They are not negative and saturate at the largest int64. An absent amount is 0 or unknown and
// rejects no pod.
type Amounts map[v1.ResourceName]int64

// Largest quantities that fit into an int64.
var (
	maxMilliAmount = resource.NewMilliQuantity(math.MaxInt64, resource.DecimalSI)
	maxAmount      = resource.NewQuantity(math.MaxInt64, resource.DecimalSI)
)

func amount(name v1.ResourceName, q quantity) int64 {
	limit, value := maxAmount, q.Value
	if name == v1.ResourceCPU {
		limit, value = maxMilliAmount, q.MilliValue
	}
	if q.Cmp(*limit) >= 0 { // the value would wrap
		return math.MaxInt64
	}
	if q.Sign() <= 0 {
		return 0
	}
	return value()
}

// Requested returns a pod with the defaults of an API server, or of a kubelet for a manifest, and its
// requests. The caller must not change the returned pod, because it shares memory with p.Pod.
// Requested does not write to p.Pod, so other goroutines may read it.
func Requested(p PodAttributes) (*v1.Pod, Amounts) {
	pod := stored(p)
	return pod, requests(pod)
}

// requests returns the requests of a stored pod: those of its containers, sidecars and init
// containers in their order of execution, or the pod-level ones, and its overhead, at most the
// kubelet's allocation of the whole pod. After a resize the allocation alone counts: the library's
// UseStatusResources would take the larger of it, the spec and the applied resources.
func requests(pod *v1.Pod) Amounts {
	out := Amounts{}
	// PodRequests (v0.37.2) modifies pod-level resources: it adds the overhead to them
	if pod.Spec.Resources != nil {
		own := *pod
		own.Spec.Resources = pod.Spec.Resources.DeepCopy()
		pod = &own
	}
	for name, q := range helper.PodRequests(pod, helper.PodResourcesOptions{}) {
		v := amount(name, q)
		if total, ok := stats.AllocatedTotal(pod, name); ok {
			v = min(v, amount(name, total))
		}
		if v > 0 {
			out[name] = v
		}
	}
	return out
}

func hugePage(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
