package eviction

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// Hard thresholds of memory and the node's disk are reserved, with percentages truncated like the
// kubelet's; no others are.
func TestHardReservation(t *testing.T) {
	capacity := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1000Mi"), v1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	for name, c := range map[string]struct {
		settings        []string
		memory, storage string
	}{
		"the defaults":                    {[]string{"hard memory.available 100Mi", "hard nodefs.available 10%", "hard imagefs.available 15%"}, "100Mi", "10737418400"},
		"a share of memory":               {[]string{"hard memory.available 10%"}, "104857601", ""},
		"soft ones keep nothing back":     {[]string{"soft memory.available 1Gi", "grace memory.available 1m"}, "", ""},
		"other signals":                   {[]string{"hard nodefs.inodesFree 5%", "hard pid.available 100", "hard imagefs.available 1Gi"}, "", ""},
		"nor the copies for the cgroup":   {[]string{"enforce pods", "hard memory.available 1Gi"}, "1Gi", ""},
		"a quantity above what there is":  {[]string{"hard memory.available 1Ti"}, "1Ti", ""},
		"soft and hard: the hard one has": {[]string{"hard memory.available 1Mi", "soft memory.available 9Mi", "grace memory.available 1m"}, "1Mi", ""},
	} {
		thresholds, _, errs := in(c.settings...).Parse()
		if len(errs) > 0 {
			t.Fatalf("%s: Parse of the settings failed: %v", name, errs)
		}
		got := HardReservation(thresholds, capacity)
		for resourceName, want := range map[v1.ResourceName]string{v1.ResourceMemory: c.memory, v1.ResourceEphemeralStorage: c.storage} {
			q, ok := got[resourceName]
			if ok != (want != "") || ok && q.Cmp(resource.MustParse(want)) != 0 {
				t.Errorf("%s: reservation of %s = %s, want %q", name, resourceName, q.String(), want)
			}
		}
	}
	share := []Threshold{{Signal: stats.SignalMemoryAvailable, Value: ThresholdValue{Percentage: 0.5}}}
	if q := HardReservation(share, nil)[v1.ResourceMemory]; !q.IsZero() {
		t.Errorf("reservation of a share of an unknown capacity = %s, want 0", q.String())
	}
}
