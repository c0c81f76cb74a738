package config

import "testing"

// Defaults of eviction that follow from no other field, as the kubelet's loader gives them (pkg/kubelet/apis/config/v1beta1/defaults.go).
func TestEvictionDefaults(t *testing.T) {
	for _, kind := range []string{own, kubelet} {
		l, err := Parse([]byte(kind))
		if err != nil || l.EvictionMaxPodGracePeriod != 0 || !l.LocalStorageCapacityIsolation || len(l.EnforceNodeAllocatable) != 1 || l.EnforceNodeAllocatable[0] != "pods" {
			t.Errorf("%q: %+v, %v", kind, l, err)
		}
	}
}
