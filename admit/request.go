package admit

import (
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
)

type quantity = resource.Quantity

// Amounts of resources: cpu in thousandths of a core, all others in bytes or pieces. None is
// negative, and what no int64 holds is the greatest one. What is absent is 0 or unknown, which
// refuses nothing either.
type Amounts map[v1.ResourceName]int64

// The greatest quantities that an amount holds as it is.
var (
	mostMilli = resource.NewMilliQuantity(math.MaxInt64, resource.DecimalSI)
	most      = resource.NewQuantity(math.MaxInt64, resource.DecimalSI)
)

func amount(name v1.ResourceName, q quantity) int64 {
	limit, value := most, q.Value
	if name == v1.ResourceCPU {
		limit, value = mostMilli, q.MilliValue
	}
	if q.Cmp(*limit) >= 0 { // whose value would wrap
		return math.MaxInt64
	}
	if q.Sign() <= 0 {
		return 0
	}
	return value()
}

// Requested is a pod as an API server would have stored it, and what it takes of the node. Both are
// for reading: the first shares with the given pod, which is not written, so that others may read
// it meanwhile.
func Requested(pod *v1.Pod) (*v1.Pod, Amounts) {
	pod = stored(PodAttributes{Pod: pod})
	return pod, requests(pod)
}

// requests are what a pod of this form takes of the node: its containers, with sidecars and init
// containers as they run, or what it requests as a whole, and its overhead. What its status says of
// a resize does not count: the agent keeps no such status, and the library (v0.37.2) counts it in
// another way than a kubelet of v1.36.
func requests(pod *v1.Pod) Amounts {
	out := Amounts{}
	if pod.Spec.Resources != nil { // to whose quantities PodRequests (v0.37.2) adds the overhead
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
