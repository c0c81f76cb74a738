package eviction

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// Only counted usage exceeds a pod's own limits: usage kept from an earlier look may have been
// moved, and would count twice.
func TestOwnLimitsUseOnlyCountedUsage(t *testing.T) {
	const mi = 1 << 20
	limit := resource.MustParse("10Mi")
	o := &v1.Pod{}
	o.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: limit}}}}
	o.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	object := NewPod(o)
	for _, part := range []string{"volume", "logs", "layer"} {
		for kept, over := range map[uint64]bool{0: true, mi: true, 2 * mi: false, 12 * mi: false, 1 << 63: false} {
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
			if signal, message := exceeds(p, object); (signal != "") != over {
				t.Errorf("%s of 12 MiB, %d KiB of them from an earlier look: message %q, want exceeded %v", part, kept>>10, message, over)
			}
		}
	}
}

// A sidecar's limit is enforced, as in a kubelet since 1.37; an init container's is not, because it ends.
func TestLimitOfASidecar(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for policy, exceeded := range map[*v1.ContainerRestartPolicy]bool{&always: true, nil: false} {
		limits := v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10Mi")}
		o := &v1.Pod{}
		o.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}}}}
		o.Spec.InitContainers = []v1.Container{{Name: "sidecar", RestartPolicy: policy, Resources: v1.ResourceRequirements{Limits: limits}}}
		p := &stats.PodStats{Announced: true, Containers: []stats.ContainerStats{{Name: "sidecar", Rootfs: stats.Some(stats.FsUsage{UsedBytes: 12 << 20})}}}
		want := ""
		if exceeded {
			want = `Container sidecar exceeded its local ephemeral storage limit "10Mi". `
		}
		if _, message := exceeds(p, NewPod(o)); message != want {
			t.Errorf("restart policy %v: message %q, want %q", policy, message, want)
		}
	}
}

// The size limit of a volume in memory is enforced as on disk: the tmpfs may have no size, and a volume of huge
// pages never has one.
func TestSizeLimitInMemory(t *testing.T) {
	limit := resource.MustParse("10Mi")
	for _, medium := range []v1.StorageMedium{v1.StorageMediumMemory, v1.StorageMediumHugePages, "HugePages-2Mi"} {
		o := &v1.Pod{}
		o.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium, SizeLimit: &limit}}}}
		object := NewPod(o)
		for used, want := range map[uint64]stats.Signal{10 << 20: "", 10<<20 + 1: SignalEmptyDirFsLimit} {
			p := &stats.PodStats{EphemeralStorage: stats.PodStorageStats{Volumes: []stats.VolumeStats{{Name: "v", Memory: true, FsUsage: stats.FsUsage{UsedBytes: used}}}}}
			if signal, _ := exceeds(p, object); signal != want || !object.Limited() {
				t.Errorf("volume of medium %s with %d bytes: signal %q, want %q; limited %v", medium, used, signal, want, object.Limited())
			}
		}
	}
}

// addLimitedPod adds a pod whose volume with a limit of 1000 MiB holds that much, or held it at an
// older look.
func (w *testNode) addLimitedPod(uid string, u stats.FsUsage) {
	limit := resource.MustParse("1000Mi")
	o := &v1.Pod{}
	o.UID, o.Name, o.Namespace = types.UID(uid), uid, "default"
	o.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	if w.objects == nil {
		w.objects = map[string]*Pod{}
	}
	w.objects[uid] = NewPod(o)
	w.addPod(uid, 10, 0, 1).EphemeralStorage.Volumes = []stats.VolumeStats{{Name: "v", FsUsage: u}}
}

// setVolume sets what the volume of the first pod holds.
func (w *testNode) setVolume(uid string, mib uint64) {
	for i := range w.pods {
		if p := &w.pods[i]; p.PodRef.UID == uid {
			p.EphemeralStorage.Volumes[0].UsedBytes = mib << 20
		}
	}
}

// nodeWithOwnLimitVictim returns a node on which a pod fills its volume beyond its own limit and
// the disk beyond the threshold. It dies for the former.
func nodeWithOwnLimitVictim(t *testing.T, filled uint64, lines ...string) (*testNode, *Life) {
	w := newTestNode(t, lines...)
	w.addLimitedPod("filler", stats.FsUsage{})
	w.setFiles("clerk", stats.FsUsage{UsedBytes: 300 << 20})
	w.setDisk(4000, 1_000_000)
	w.wantVictim(w.look(11*time.Second), "")
	w.setDisk(800, 1_000_000)
	w.setVolume("filler", filled)
	l := w.look(11 * time.Second)
	if w.wantVictim(l, "filler"); !l.e.Local() {
		t.Fatalf("eviction of filler for %s, want its own limit", l.e.Signal)
	}
	return w, l
}

// While the files of an own-limit victim are removed, and until the disk was measured after that,
// no other pod is evicted for the disk.
func TestOwnLimitVictimDelaysDisk(t *testing.T) {
	for _, lines := range [][]string{
		{"hard nodefs.available 1000Mi"}, {"soft nodefs.available 1000Mi", "grace nodefs.available 1s"},
		{"hard nodefs.available 1000Mi", "hard imagefs.available 1000Mi"},
	} {
		w, l := nodeWithOwnLimitVictim(t, 3200, lines...)
		w.wantVictim(w.look(2*time.Second), "")
		w.setDisk(300, 1_000_000) // it writes on while it is being stopped
		w.wantVictim(w.look(2*time.Second), "")
		w.reportDead(l)
		for range 20 {
			w.wantVictim(w.look(2*time.Second), "")
		}
		w.m.Cleaned(Stamp{Time: w.now}, l)
		w.wantVictim(w.look(0), "") // measured before the removal
		w.setDisk(700, 1_000_000)   // the runtime frees it bit by bit
		w.wantVictim(w.look(2*time.Second), "")
		w.setDisk(4000, 1_000_000)
		w.wantVictim(w.look(2*time.Second), "")
		w.setDisk(900, 1_000_000) // returned by others
		var next *Life
		for range 5 {
			if l := w.look(time.Second); l != nil {
				next = l
			}
		}
		w.wantVictim(next, "clerk")
	}
}

// A small own-limit victim does not end a disk's shortage: the pod that fills the disk is evicted.
func TestOwnLimitVictimDelaysOnlyIfEnough(t *testing.T) {
	w := newTestNode(t, "hard nodefs.available 3000Mi")
	w.addLimitedPod("filler", stats.FsUsage{})
	w.setFiles("clerk", stats.FsUsage{UsedBytes: 300 << 20})
	w.setDisk(4000, 1_000_000)
	w.wantVictim(w.look(11*time.Second), "")
	w.setDisk(1500, 1_000_000)
	w.setVolume("filler", 1010)
	l := w.look(11 * time.Second)
	w.wantVictim(l, "filler")
	w.reportDead(l)
	w.wantVictim(w.look(2*time.Second), "clerk")
}

// Two own-limit victims end it together.
func TestOwnLimitVictimsDelayDiskTogether(t *testing.T) {
	w := newTestNode(t, "hard nodefs.available 3000Mi")
	w.addLimitedPod("filler", stats.FsUsage{})
	w.addLimitedPod("second", stats.FsUsage{})
	w.setFiles("clerk", stats.FsUsage{UsedBytes: 300 << 20})
	w.setDisk(4000, 1_000_000)
	w.wantVictim(w.look(11*time.Second), "")
	w.setDisk(900, 1_000_000)
	w.setVolume("filler", 1200)
	w.setVolume("second", 1100)
	l := w.look(11 * time.Second)
	w.wantVictim(l, "filler")
	second := w.look(2 * time.Second)
	w.wantVictim(second, "second")
	w.reportDead(l)
	w.reportDead(second)
	for range 20 {
		w.wantVictim(w.look(2*time.Second), "")
	}
}

// The wait ends: the bounds of the wait for a victim for the disk apply here too.
func TestDiskWaitForOwnLimitVictimEnds(t *testing.T) {
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
			w, l := nodeWithOwnLimitVictim(t, 3200, "hard nodefs.available 1000Mi")
			w.setDisk(0, 1_000_000)
			w.wantVictim(w.look(time.Second), "")
			since := w.now
			if c.dead {
				w.reportDead(l)
			}
			if c.clean {
				w.m.Cleaned(Stamp{Time: w.now}, l)
			}
			w.wantEvictionWithin(since, c.least, c.most, "clerk")
		})
	}
}

// wantEvictionWithin checks that a pod is evicted that long after a time, and none before it.
func (w *testNode) wantEvictionWithin(since time.Time, least, most time.Duration, want string) {
	w.t.Helper()
	for {
		l := w.look(time.Second)
		switch waited := w.now.Sub(since); {
		case waited > most:
			w.t.Fatalf("no eviction for %v, want one within %v: %s", waited, most, w.reason)
		case l != nil && l.e.Pod.PodRef.UID != want:
			continue
		case l != nil && waited < least:
			w.t.Fatalf("eviction after %v, want at least %v", waited, least)
		case l != nil:
			return
		}
	}
}

// The disk usage of an own-limit victim survives a restart.
func TestOwnLimitReturnsSurviveRestart(t *testing.T) {
	w, l := nodeWithOwnLimitVictim(t, 3200, "hard nodefs.available 1000Mi")
	l.e.Pod.CgroupID.Ino = 1
	restored := managerOf(t, 0, "own x", "hard nodefs.available 1000Mi")
	restored.config.Replay = false
	if dropped := restored.Resume(w.now, throughFile(t, w.m.Save())); len(dropped) > 0 || restored.evictions.lives[0].baselines != l.baselines {
		t.Fatalf("Resume dropped %v, baselines = %+v, want %+v", dropped, restored.evictions.lives[0].baselines, l.baselines)
	}
	w.m = restored
	w.reportDead(w.m.evictions.lives[0])
	for range 20 {
		w.wantVictim(w.look(2*time.Second), "")
	}
}
