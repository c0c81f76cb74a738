package config

import "testing"

// Eviction defaults that depend on no other field are the kubelet's
// (pkg/kubelet/apis/config/v1beta1/defaults.go).
func TestEvictionDefaults(t *testing.T) {
	for _, kind := range []string{own, kubelet} {
		l, err := Parse([]byte(kind))
		if err != nil || l.EvictionMaxPodGracePeriod != 0 || !l.LocalStorageCapacityIsolation || len(l.EnforceNodeAllocatable) != 1 || l.EnforceNodeAllocatable[0] != "pods" {
			t.Errorf("defaults of %q: got %+v, error %v, want the kubelet's", kind, l, err)
		}
	}
}
