package admit

import (
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
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

// Requested returns a pod with the defaults of an API server, and its requests. The caller must not
// change the returned pod, because it shares memory with the given pod. Requested does not write to
// the given pod, so other goroutines may read it.
func Requested(pod *v1.Pod) (*v1.Pod, Amounts) {
	pod = stored(PodAttributes{Pod: pod})
	return pod, requests(pod)
}

// requests returns the requests of a stored pod: those of its containers, sidecars and init
// containers in their order of execution, or the pod-level ones, and its overhead. It ignores a
// resize in the status: the agent has no such status, and the library (v0.37.2) counts a resize
// differently from a kubelet of v1.36.
func requests(pod *v1.Pod) Amounts {
	out := Amounts{}
	// PodRequests (v0.37.2) modifies pod-level resources: it adds the overhead to them
	if pod.Spec.Resources != nil {
		own := *pod
		own.Spec.Resources = pod.Spec.Resources.DeepCopy()
		pod = &own
	}
	for name, q := range helper.PodRequests(pod, helper.PodResourcesOptions{}) {
		if v := amount(name, q); v > 0 {
			out[name] = v
		}
	}
	return out
}

func hugePage(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
