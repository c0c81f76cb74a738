package eviction

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// A pod exceeds limits of its own by what was counted only: what is kept of an earlier look may have been moved, and would count twice.
func TestOwnLimitsKnowOnlyWhatWasCounted(t *testing.T) {
	const mi = 1 << 20
	limit := resource.MustParse("10Mi")
	o := &v1.Pod{}
	o.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: limit}}}}
	o.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	object := NewPod(o)
	for _, part := range []string{"volume", "logs", "layer"} {
		for kept, exceeds := range map[uint64]bool{0: true, mi: true, 2 * mi: false, 12 * mi: false, 1 << 63: false} {
			u := stats.FsUsage{UsedBytes: 12 * mi, KeptBytes: kept, Partial: true}
			p := &stats.PodStats{Announced: true, Containers: []stats.ContainerStats{{Name: "c"}}}
			switch part {
			case "volume":
				p.EphemeralStorage.Volumes = []stats.VolumeStats{{Name: "v", FsUsage: u}}
			case "logs":
				p.Containers[0].Logs = stats.Some(u)
			case "layer":
				p.Containers[0].Rootfs = stats.Some(u)
			}
			m := managerOf(t, 0, "hard nodefs.available 10Gi")
			m.layout = stats.Some(stats.Layout{})
			if signal, message := m.exceeds(p, object); (signal != "") != exceeds {
				t.Errorf("%s of 12 MiB, %d KiB of them kept: %q", part, kept>>10, message)
			}
		}
	}
}
