package eviction

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// fillPod is a pod of a filling disk. Amounts are in MiB, or in inodes.
type fillPod struct {
	uid                string
	qos                stats.QOSClass
	holds              uint64
	fills, overwrites  uint64 // per second
	how                string // why it is not measured completely; empty: it is
	uncounted          bool   // the kernel does not count what it writes
	silent             bool   // another process writes what it fills
	hostPath           bool   // it may write to a hostPath volume
	claim              bool   // it may write to a persistent volume
	elsewhere          uint64 // written to another disk per second
	reads              uint64 // files read per second, which slab memory holds too
	slab               uint64 // inodes that slab memory holds before it is reclaimed; 0: all
	wrote, other, read uint64
	measured           uint64
	walked, dead, gone time.Time
}

// fillingDisk is a node whose disk fills, second by second. Victims die within a second, and their
// files are removed within two.
type fillingDisk struct {
	m        *Manager
	pods     []*fillPod
	inodes   bool
	soft     bool   // a soft threshold is met earlier
	grace    string // of the soft threshold; empty: 30s
	left     uint64 // MiB, or inodes
	outside  uint64 // what something else takes per second
	demanded time.Time
	relieved time.Time // end of the garbage collection in progress
	victims  []fillVictim
	lives    map[*fillPod]*Life
}

type fillVictim struct {
	uid  string
	at   time.Duration
	left uint64 // when it was dead
}

// The disk has 100 GiB or 102,400 inodes; the threshold is a tenth.
const (
	fillCapacity = 100 << 10
	fillLimit    = 10 << 10
	fillQuiet    = 30 << 10
	fillDisk     = 7 // device
)

func newFillingDisk(t *testing.T, inodes, soft bool, pods ...*fillPod) *fillingDisk {
	f := &fillingDisk{pods: pods, inodes: inodes, soft: soft, left: fillQuiet, lives: map[*fillPod]*Life{}}
	f.m = f.manager(t)
	return f
}

func (f *fillingDisk) manager(t *testing.T) *Manager {
	setting := "hard nodefs.available 10Gi"
	if f.inodes {
		setting = fmt.Sprintf("hard nodefs.inodesFree %d", fillLimit)
	}
	settings := []string{"own x", setting}
	if f.soft && f.inodes {
		settings = append(settings, fmt.Sprintf("soft nodefs.inodesFree %d", fillLimit*3/2), "grace nodefs.inodesFree "+cmp.Or(f.grace, "30s"))
	} else if f.soft {
		settings = append(settings, "soft nodefs.available 15Gi", "grace nodefs.available "+cmp.Or(f.grace, "30s"))
	}
	m := managerOf(t, 5*time.Minute, settings...)
	m.config.Replay, m.config.Explain, m.config.Breaker = false, true, true
	return m
}

// restart replaces the manager by one that resumes its state.
func (f *fillingDisk) restart(t *testing.T, now time.Time) {
	saved := throughFile(t, f.m.Save())
	if f.m = f.manager(t); len(f.m.Resume(now, saved)) > 0 {
		t.Fatal("Resume dropped saved state, want nothing dropped")
	}
}

func (f *fillingDisk) unit() uint64 {
	if f.inodes {
		return 1
	}
	return mib
}

// stats returns a pod as a look finds it.
func (p *fillPod) stats(f *fillingDisk) stats.PodStats {
	s := stats.PodStats{PodRef: stats.PodReference{UID: p.uid, Name: p.uid}, QOSClass: p.qos, Announced: true,
		Populated: stats.Some(p.dead.IsZero()), StartTime: epoch.Add(-time.Hour), SandboxIDs: []string{"s"}}
	if !p.uncounted { // the file system is on a stacked device
		v, other := p.wrote*f.unit(), p.other*f.unit()
		s.Written = stats.WrittenStats{Bytes: stats.Some(2*v + other), Inodes: stats.Some(v + p.read),
			Devices: []stats.DeviceWrites{{Device: fillDisk, Bytes: v}, {Device: fillDisk + 1, Bytes: v}, {Device: fillDisk + 2, Bytes: other}}}
		if p.slab > 0 {
			s.Written.Inodes.V %= p.slab
		}
	}
	if p.walked.IsZero() {
		return s
	}
	found := stats.Some(stats.FsUsage{Time: p.walked, UsedBytes: p.measured * f.unit(), InodesUsed: p.measured})
	st := &s.EphemeralStorage
	st.Time = p.walked
	switch p.how {
	case "unmeasured":
		st.Time = time.Time{}
		return s
	case "no layers": // only its logs were measured
		st.Logs = stats.Some(stats.FsUsage{Time: p.walked, UsedBytes: 1, InodesUsed: 1})
		return s
	case "hung volume":
		found.V.UsedBytes, found.V.InodesUsed = 1, 1
		st.Volumes = []stats.VolumeStats{{Name: "fuse", FsUsage: stats.FsUsage{Time: p.walked, Partial: true}}}
	case "cut", "cut at rest":
		found.V.Partial, st.Partial, st.Cut = true, true, true
		found.V.UsedBytes, found.V.InodesUsed = found.V.UsedBytes/20, found.V.InodesUsed/20
	}
	s.Containers = []stats.ContainerStats{{Name: "c", Rootfs: found}}
	st.UsedBytes, st.InodesUsed = stats.Some(found.V.UsedBytes), stats.Some(found.V.InodesUsed)
	return s
}

// object returns the object of a pod that mounts a hostPath volume or a persistent volume for writing,
// and a hostPath volume read-only.
func (p *fillPod) object() *Pod {
	written := v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}
	if p.claim {
		written = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	}
	return NewPod(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.uid, UID: types.UID(p.uid)},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "ro", ReadOnly: true}, {Name: "rw"}}}},
			Volumes: []v1.Volume{{Name: "ro", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/etc"}}},
				{Name: "rw", VolumeSource: written}},
		},
	})
}

func (f *fillingDisk) input(now time.Time) Input {
	s := &stats.Summary{Time: now}
	s.Node.Layout = stats.Some(stats.Layout{})
	s.Node.Fs = stats.Some(stats.FsStats{Time: now, Disk: fillDisk, CapacityBytes: stats.Some(uint64(fillCapacity * mib)), AvailableBytes: stats.Some(uint64(fillQuiet * mib)),
		Inodes: stats.Some(uint64(fillCapacity)), InodesFree: stats.Some(f.left)})
	if !f.inodes {
		s.Node.Fs.V.AvailableBytes = stats.Some(f.left * mib)
	}
	objects := map[string]*Pod{}
	for _, p := range f.pods {
		if p.gone.IsZero() || now.Before(p.gone) {
			s.Pods = append(s.Pods, p.stats(f))
		}
		if p.hostPath || p.claim {
			objects[p.uid] = p.object()
		}
	}
	return Input{Summary: s, Pods: objects}
}

// pass lets a second pass.
func (f *fillingDisk) pass(now time.Time) {
	for _, p := range f.pods {
		switch l := f.lives[p]; {
		case l == nil:
			more := min(p.fills, f.left)
			if p.holds, p.wrote, f.left = p.holds+more, p.wrote+p.overwrites, f.left-more; !p.silent {
				p.wrote += more
			}
			p.other, p.read = p.other+p.elsewhere, p.read+p.reads
		case p.gone.IsZero():
		case !p.dead.IsZero() && !now.Before(p.gone) && !l.cleanedUp:
			f.left, p.holds = f.left+p.holds, 0
			f.m.Cleaned(Stamp{Time: now}, l)
		}
	}
	f.left -= min(f.outside, f.left)
	if !f.relieved.IsZero() && !now.Before(f.relieved) {
		f.relieved = time.Time{}
		f.m.Relieved(now)
	}
	if !f.demanded.IsZero() && now.Sub(f.demanded) >= 2*time.Second { // the walks
		for _, p := range f.pods {
			p.walked, p.measured = f.demanded, p.holds
		}
		f.demanded = time.Time{}
	}
}

// look makes one look, and kills its victim.
func (f *fillingDisk) look(now time.Time, since time.Duration) {
	in := f.input(now)
	r := f.m.Observe(now, &in.Summary.Node, Situation{})
	if r.Look != LookFull {
		return
	}
	if f.m.watch.all[0].met {
		for _, p := range f.pods { // longer walks find all
			if p.how == "cut at rest" && f.m.explain.remeasureSince.Before(now) && !f.m.explain.remeasureSince.IsZero() {
				p.how = ""
			}
		}
	}
	for _, p := range f.pods { // as disk.Loop.Fresh
		unmeasurable := p.how == "unmeasured" || p.how == "hung volume"
		if wanted := r.DiskMeasuredSince; !wanted.IsZero() && (unmeasurable || p.walked.Before(wanted) && p.how != "cut" && p.how != "cut at rest") && f.lives[p] == nil {
			in.Measuring = true
		}
	}
	if hurries := r.DisksShort && now.Sub(f.pods[0].walked) >= 5*time.Second; (in.Measuring || hurries) && f.demanded.IsZero() {
		f.demanded = now
	}
	d := f.m.Step(now, in)
	if len(d.Reclaim) > 0 && len(d.Evictions) == 0 {
		switch f.m.Relief(now, &d) {
		case ReliefBegin:
			f.relieved = now.Add(3 * time.Second)
			return
		case ReliefBeginNow:
			f.relieved = now.Add(3 * time.Second)
		case ReliefWait:
			return
		}
		d = f.m.StepAfterReclaim(now, in)
	}
	if len(d.Evictions) == 0 {
		return
	}
	for _, p := range f.pods {
		if p.uid == d.Evictions[0].Pod.PodRef.UID {
			l := f.m.Begin(Stamp{Time: now}, d.Evictions[0], d.Signal)
			f.lives[p], p.dead, p.gone = l, now, now.Add(2*time.Second)
			f.m.Emptied(Stamp{Time: now}, l)
			f.victims = append(f.victims, fillVictim{p.uid, since, f.left})
		}
	}
}

// run lets time pass until then. It calls each before every second.
func (f *fillingDisk) run(long time.Duration, each func(now time.Time, since time.Duration)) {
	for since := time.Duration(0); since <= long; since += time.Second {
		now := epoch.Add(since)
		each(now, since)
		f.pass(now)
		f.look(now, since)
		f.m.Acknowledge()
	}
}

// measureAll makes the last walk find all that the pods hold.
func (f *fillingDisk) measureAll() {
	for _, p := range f.pods {
		p.walked, p.measured = epoch.Add(-time.Second), p.holds
	}
}

// wantAlone checks that one pod was evicted, while something was left of the disk.
func (f *fillingDisk) wantAlone(t *testing.T, uid string) {
	t.Helper()
	if len(f.victims) != 1 || f.victims[0].uid != uid || f.victims[0].left == 0 {
		t.Errorf("victims = %+v, want %s alone, while something is left", f.victims, uid)
	}
}

// fillLater lets all pods but the first fill the disk from a time until two minutes after the crossing.
func (f *fillingDisk) fillLater(t *testing.T, begins time.Duration, rate uint64) {
	t.Helper()
	f.measureAll()
	filling := time.Duration((fillQuiet-fillLimit)/(rate*uint64(len(f.pods)-1))) * time.Second
	f.run(begins+filling+2*time.Minute, func(_ time.Time, since time.Duration) {
		if since == begins {
			for _, p := range f.pods[1:] {
				p.fills = rate
			}
		}
	})
}
