package eviction

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

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
			m.watch.disks.layout = stats.Some(stats.Layout{})
			if signal, message := m.watch.disks.exceeds(p, object); (signal != "") != exceeds {
				t.Errorf("%s of 12 MiB, %d KiB of them kept: %q", part, kept>>10, message)
			}
		}
	}
}

// limited gives a pod a volume with a limit of 1000 MiB, of which it has filled so much, or an older look says so.
func (w *ward) limited(uid string, u stats.FsUsage) {
	limit := resource.MustParse("1000Mi")
	o := &v1.Pod{}
	o.UID, o.Name, o.Namespace = types.UID(uid), uid, "default"
	o.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	if w.objects == nil {
		w.objects = map[string]*Pod{}
	}
	w.objects[uid] = NewPod(o)
	w.pod(uid, 10, 0, 1).EphemeralStorage.Volumes = []stats.VolumeStats{{Name: "v", FsUsage: u}}
}

// fills sets what the volume of the first pod holds.
func (w *ward) fills(uid string, mib uint64) {
	for i := range w.pods {
		if p := &w.pods[i]; p.PodRef.UID == uid {
			p.EphemeralStorage.Volumes[0].UsedBytes = mib << 20
		}
	}
}

// ownLimit is a node on whose disk a pod fills its volume beyond its own limit and the disk beyond the threshold. It dies for the former.
func ownLimit(t *testing.T, filled uint64, lines ...string) (*ward, *Life) {
	w := newWard(t, lines...)
	w.limited("filler", stats.FsUsage{})
	w.files("clerk", stats.FsUsage{UsedBytes: 300 << 20})
	w.disk(4000, 1_000_000)
	w.victim(w.look(11*time.Second), "")
	w.disk(800, 1_000_000)
	w.fills("filler", filled)
	l := w.look(11 * time.Second)
	if w.victim(l, "filler"); !l.e.Local() {
		t.Fatalf("it goes for %s", l.e.Signal)
	}
	return w, l
}

// While the files of who died for a limit of its own are removed, and until the disk was measured after that, no other one goes for the disk.
func TestAVictimOfItsOwnLimitHoldsTheDisk(t *testing.T) {
	for _, lines := range [][]string{
		{"hard nodefs.available 1000Mi"}, {"soft nodefs.available 1000Mi", "grace nodefs.available 1s"},
		{"hard nodefs.available 1000Mi", "hard imagefs.available 1000Mi"},
	} {
		w, l := ownLimit(t, 3200, lines...)
		w.victim(w.look(2*time.Second), "")
		w.disk(300, 1_000_000) // it writes on while it is being stopped
		w.victim(w.look(2*time.Second), "")
		w.dead(l)
		for range 20 {
			w.victim(w.look(2*time.Second), "")
		}
		w.m.Cleaned(Stamp{Time: w.now}, l)
		w.victim(w.look(0), "") // that was measured before
		w.disk(700, 1_000_000)  // the runtime frees it bit by bit
		w.victim(w.look(2*time.Second), "")
		w.disk(4000, 1_000_000)
		w.victim(w.look(2*time.Second), "")
		w.disk(900, 1_000_000) // what comes then is somebody else's
		var next *Life
		for range 5 {
			if l := w.look(time.Second); l != nil {
				next = l
			}
		}
		w.victim(next, "clerk")
	}
}

// A little of a pod that exceeds a limit of its own does not end the shortage of a disk: who fills that goes.
func TestAVictimOfItsOwnLimitHoldsNoDiskThatItDoesNotEase(t *testing.T) {
	w := newWard(t, "hard nodefs.available 3000Mi")
	w.limited("filler", stats.FsUsage{})
	w.files("clerk", stats.FsUsage{UsedBytes: 300 << 20})
	w.disk(4000, 1_000_000)
	w.victim(w.look(11*time.Second), "")
	w.disk(1500, 1_000_000)
	w.fills("filler", 1010)
	l := w.look(11 * time.Second)
	w.victim(l, "filler")
	w.dead(l)
	w.victim(w.look(2*time.Second), "clerk")
}

// Two that exceed limits of their own end it together.
func TestVictimsOfTheirOwnLimitsHoldTheDiskTogether(t *testing.T) {
	w := newWard(t, "hard nodefs.available 3000Mi")
	w.limited("filler", stats.FsUsage{})
	w.limited("second", stats.FsUsage{})
	w.files("clerk", stats.FsUsage{UsedBytes: 300 << 20})
	w.disk(4000, 1_000_000)
	w.victim(w.look(11*time.Second), "")
	w.disk(900, 1_000_000)
	w.fills("filler", 1200)
	w.fills("second", 1100)
	l := w.look(11 * time.Second)
	w.victim(l, "filler")
	second := w.look(2 * time.Second)
	w.victim(second, "second")
	w.dead(l)
	w.dead(second)
	for range 20 {
		w.victim(w.look(2*time.Second), "")
	}
}

// It does not for ever: what bounds the wait for a victim of the disk bounds this one.
func TestWhatADiskWaitsForAVictimOfItsOwnLimitHasAnEnd(t *testing.T) {
	for _, c := range []struct {
		name        string
		dead, clean bool
		least, most time.Duration
	}{
		{"undying", false, false, 10 * time.Second, 12 * time.Second},
		{"never removed", true, false, 2 * time.Minute, 2*time.Minute + 4*time.Second},
		{"never freed", true, true, time.Minute, time.Minute + 4*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, l := ownLimit(t, 3200, "hard nodefs.available 1000Mi")
			w.disk(0, 1_000_000)
			w.victim(w.look(time.Second), "")
			since := w.now
			if c.dead {
				w.dead(l)
			}
			if c.clean {
				w.m.Cleaned(Stamp{Time: w.now}, l)
			}
			w.ends(since, c.least, c.most, "clerk")
		})
	}
}

// ends holds that a pod goes so long after that, and none before it.
func (w *ward) ends(since time.Time, least, most time.Duration, want string) {
	w.t.Helper()
	for {
		l := w.look(time.Second)
		switch waited := w.now.Sub(since); {
		case waited > most:
			w.t.Fatalf("nobody goes for %v: %s", waited, w.why)
		case l != nil && l.e.Pod.PodRef.UID != want:
			continue
		case l != nil && waited < least:
			w.t.Fatalf("it goes after %v", waited)
		case l != nil:
			return
		}
	}
}

// What a victim of its own limit holds of a disk is known after a restart.
func TestWhatAVictimOfItsOwnLimitOwesIsKept(t *testing.T) {
	w, l := ownLimit(t, 3200, "hard nodefs.available 1000Mi")
	l.e.Pod.CgroupID.Ino = 1
	again := managerOf(t, 0, "own x", "hard nodefs.available 1000Mi")
	again.config.Replay = false
	if dropped := again.Resume(w.now, onFile(t, w.m.Save())); len(dropped) > 0 || again.evictions.lives[0].baselines != l.baselines {
		t.Fatalf("%v: %+v, want %+v", dropped, again.evictions.lives[0].baselines, l.baselines)
	}
	w.m = again
	w.dead(w.m.evictions.lives[0])
	for range 20 {
		w.victim(w.look(2*time.Second), "")
	}
}
