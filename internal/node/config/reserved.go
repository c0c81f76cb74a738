package config

import (
	"fmt"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/admit"
)

// enforcePods is the value of enforceNodeAllocatable that limits the cgroup above all pods to node
// allocatable.
const enforcePods = "pods"

// EnforcesPods reports whether the limit of the cgroup above all pods is node allocatable.
// Otherwise it is the node's capacity, as with a kubelet
// (pkg/kubelet/cm/node_container_manager_linux.go enforceNodeAllocatableCgroups, v1.37.2).
func (c *Config) EnforcesPods() bool {
	return slices.Contains(c.EnforceNodeAllocatable, enforcePods)
}

// maxMicro is the largest number of cores that a kubelet rounds correctly.
var maxMicro = *resource.NewScaledQuantity(math.MaxInt64-500, resource.Micro)

// parseReserved parses the reservations and the factor of memory.high. A kubelet does not start
// with values that are wrong here.
func (c *Config) parseReserved() (err error) {
	if c.Reserved.Kube, err = parseResources("kubeReserved", c.KubeReserved); err != nil {
		return err
	}
	if c.Reserved.System, err = parseResources("systemReserved", c.SystemReserved); err != nil {
		return err
	}
	// pkg/kubelet/apis/config/validation/validation.go, except that 0 is as good as no value; the
	// negation also rejects NaN
	if f := c.MemoryThrottlingFactor; !(f >= 0 && f <= 1) {
		err := fmt.Errorf("invalid configuration: memoryThrottlingFactor %v must be greater than 0 and "+
			"less than or equal to 1.0", f)
		return fieldError(err, "memoryThrottlingFactor")
	}
	return nil
}

// parseResources parses a reservation with the kubelet's grammar and texts (cmd/kubelet/app/server.go
// parseResourceList, v1.37.2), in whole thousandths of a core.
func parseResources(field string, texts map[string]string) (v1.ResourceList, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	out := v1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		switch v1.ResourceName(name) {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, admit.ResourcePIDs:
		default:
			err := fmt.Errorf("cannot reserve %q resource: want cpu, memory, ephemeral-storage or pid", name)
			return nil, fieldError(err, field, name)
		}
		q, err := boundedQuantity(texts[name])
		if err != nil {
			return nil, fieldError(fmt.Errorf("failed to parse quantity %.40q for %q resource: %w", texts[name],
				name, err), field, name)
		}
		if q.Sign() < 0 {
			return nil, fieldError(fmt.Errorf("resource quantity for %q cannot be negative: %.40s", name,
				texts[name]), field, name)
		}
		if name == string(v1.ResourceCPU) && q.Cmp(maxMicro) < 0 { // above, the sum would overflow
			q.SetMilli((q.ScaledValue(resource.Micro) + 500) / 1000)
		}
		out[v1.ResourceName(name)] = q
	}
	return out, nil
}
