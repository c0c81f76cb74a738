package read

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// unnamed is what the processes of one pod keep of files that no directory has any more.
type unnamed struct {
	by      map[uint64]usage // by the device of the disk that has the blocks; nil: it was not looked for
	cut     bool             // its turn ended before
	lacks   bool             // the host's mounts are not all known
	turn    time.Duration    // that it might have taken
	holders map[int]uint64   // process ids, and what each was found to keep in bytes: a few, for the order of the next look
	time    time.Time        // it began
	nth     int              // look at that pod
	own     map[uint64]usage // what of by it has counted itself, where a part is kept; nil: all
	kept    time.Time        // when what is kept of by was counted; zero: nothing is
}

// A look takes a turn at most. One that was cut off gets twice as much the next time.
const (
	unnamedTurn        = 2 * time.Second
	longestUnnamedTurn = 30 * time.Second
)

// What a tenant decides - how many processes, how many files - must not decide what a look costs.
const (
	maxProcesses = 1 << 16 // of one pod; beyond, they are left out
	maxRanked    = 4096    // of those are put in order by what they have written
	maxFirst     = 1024    // descriptors of a thread that are looked at before every process had its turn
	maxHolders   = 64      // remembered of one pod
	maxFileSets  = 8       // of the threads of one process, likewise; most have one
)

// unnamedFiles finds files without a name: unlinked, but open or mapped by a process of a pod, its program, or mounted for it. No walk
// of directories sees them, nor do du(1) and the kubelet. They are seen through /proc/PID/fd, map_files, exe and mountinfo as the kernel
// has them (kernel 6.12 and 6.1 alike): with a link count of 0 and their blocks; st_dev is that of the disk, and of a file in a
// container's writable layer that of the overlay, whose upper directory says which disk it is. It is for one goroutine.
//
// What a process, or who serves it files, can hold up is not waited for (guard): then what is found is a lower bound.
//
// Not seen: what only an io_uring, a descriptor on its way through a socket, an overlay that a pod has mounted for itself, or mounts that
// no process is in keep.
type unnamedFiles struct {
	fs      *cgroup.FS
	roots   []string // cgroups whose children are pods
	proc    string
	host    *HostRoot
	disks   func() map[uint64]bool          // devices that may be short
	pace    func(context.Context) error     // as the walker's
	belongs func(pid int, name string) bool // inGroup of proc (nil), or a test's

	walker   cgroup.Walker
	guard    guard
	buf      []byte
	overlays map[uint64]string // upper directories of the host's overlays, by device, as of mounted
	mounted  time.Time
	hosts    []mount               // of files without a name, as of mounted
	lacks    bool                  // the host has more mounts than were read then
	held     map[[2]uint64]holding // inodes, by device and number

	// Of the look under way.
	began   time.Time
	now     map[uint64]bool // disks
	upper   map[uint64]uint64
	seen    map[[2]uint64]bool
	uid     string
	counted map[project]bool
	out     *unnamed
	steps   int
	group   string // base name of the pod's cgroup
	pid     int
	member  bool                // pid was found to be in it
	mounts  map[uint64]uint64   // of the thread whose descriptors are looked at: their devices, by id; nil: not read yet
	onDisk  bool                // the descriptor looked at is on one
	spaces  map[mountSpace]bool // whose mounts were gone through
	again   bool                // the host's mounts were read anew for one that was not among them
}

func newUnnamedFiles(fs *cgroup.FS, roots []string, proc string, host *HostRoot, disks func() map[uint64]bool) *unnamedFiles {
	return &unnamedFiles{fs: fs, roots: roots, proc: proc, host: host, disks: disks, buf: make([]byte, 16<<10),
		guard: guard{patience: stuckPatience}, held: map[[2]uint64]holding{}, seen: map[[2]uint64]bool{},
		spaces: map[mountSpace]bool{}}
}

// look finds what a pod's processes keep, for a turn at most. before is what the last look has found; counted are the projects whose usage
// the file system itself has told already, files without a name included.
func (f *unnamedFiles) look(ctx context.Context, uid string, pod *Pod, counted map[project]bool, before *unnamed) (out unnamed) {
	out = unnamed{by: map[uint64]usage{}, turn: unnamedTurn, holders: map[int]uint64{}, time: time.Now(), nth: before.nth + 1}
	if before.cut {
		out.turn = min(2*before.turn, longestUnnamedTurn)
	}
	short, cancel := context.WithTimeoutCause(ctx, out.turn, errTurnOver)
	defer cancel()
	f.now, f.upper, f.uid, f.counted, f.out = f.disks(), map[uint64]uint64{}, uid, counted, &out
	clear(f.seen)
	clear(f.spaces)
	f.again = false
	if f.began = time.Now(); f.began.Sub(f.mounted) >= mountsEvery {
		f.readOverlays()
	}
	began := time.Now()
	for _, name := range f.groups(uid, pod) {
		f.group = path.Base(name)
		f.all(short, f.order(f.processes(name, began.Add(out.turn/4)), before))
	}
	f.keptByHost(short)
	maps.DeleteFunc(f.held, func(id [2]uint64, h holding) bool {
		return h.uid == uid && !f.seen[id] && (!out.cut || out.nth-h.nth >= heldFor)
	})
	if out.lacks = f.lacks; out.lacks {
		out.atLeast()
	}
	if out.cut {
		out.larger(before)
	}
	return out
}

// atLeast marks the figures as lower bounds.
func (u *unnamed) atLeast() {
	for device, now := range u.by {
		now.partial = true
		u.by[device] = now
	}
}

// holding is which pod an inode counts for, and in which of its looks it was found last.
type holding struct {
	uid string
	nth int
}

// heldFor looks an inode counts for the pod that held it, where they are cut off and do not find it: by then another pod may hold it, or
// an inode of that number.
const heldFor = 2

// larger keeps the figures of the look before where they are larger: to be hard to count must not make a pod smaller. What was kept already
// for storageLimit after it was counted is not kept any more: then the look before counts.
func (u *unnamed) larger(before *unnamed) {
	u.own = maps.Clone(u.by)
	kept, counted := before.by, before.time
	switch {
	case before.kept.IsZero():
	case u.time.Sub(before.kept) > storageLimit:
		kept = before.own
	default:
		counted = before.kept
	}
	for device, old := range kept {
		now := u.by[device]
		if old.bytes > now.bytes || old.inodes > now.inodes {
			u.kept = counted
		}
		u.by[device] = usage{bytes: max(now.bytes, old.bytes), inodes: max(now.inodes, old.inodes)}
	}
	u.atLeast()
}

// on is what lies on a device.
func (u *unnamed) on(device stats.Opt[stats.FsStats]) (out stats.Opt[stats.FsUsage]) {
	if u.by == nil || !device.OK {
		return out
	}
	on := u.by[device.V.Device]
	return stats.Some(stats.FsUsage{Time: u.time, UsedBytes: on.bytes, InodesUsed: on.inodes, Partial: on.partial || u.cut || u.lacks})
}

// forget drops the inodes of pods that are gone.
func (f *unnamedFiles) forget(known map[string]bool) {
	maps.DeleteFunc(f.held, func(_ [2]uint64, h holding) bool { return !known[h.uid] })
}

// groups are the pod's cgroups: those in the hierarchy that are named after it, and the one that the runtime names, if that is.
func (f *unnamedFiles) groups(uid string, pod *Pod) (names []string) {
	take := func(root, name string) {
		if p, ok := stats.ParsePodCgroup(root, name); ok && p.UID == uid && !slices.Contains(names, p.Path) {
			names = append(names, p.Path)
		}
	}
	for _, root := range f.roots {
		if err := f.fs.Children(root, f.buf, func(name string) { take(root, name) }); err != nil {
			f.out.cut = true
		}
	}
	if pod != nil && pod.Cgroup != "" {
		dir, base := path.Split(pod.Cgroup)
		take(strings.Trim(dir, "/"), base)
	}
	return names
}

// processes are those in a cgroup and all below it, as far as these can be gone through until a time: most of a turn is for their files.
func (f *unnamedFiles) processes(name string, until time.Time) (pids []int) {
	g, err := f.fs.Group(name)
	if err != nil {
		f.out.cut = f.out.cut || !errors.Is(err, cgroup.ErrVanished)
		return nil
	}
	defer g.Close()
	deep := f.walker.Walk(g, func(g *cgroup.Group) bool {
		// That of a threaded group cannot be read: the group above has its processes.
		_ = g.Procs(f.buf, func(pid int) {
			if pid == 0 || len(pids) >= maxProcesses { // 0: in a pid namespace that is not below this one
				f.out.cut = true
				return
			}
			pids = append(pids, pid)
		})
		late := time.Now().After(until)
		f.out.cut = f.out.cut || late
		return len(pids) < maxProcesses && !late
	})
	f.out.cut = f.out.cut || deep
	return pids
}

// order puts those first that kept the most the last time, then those that have written the most.
func (f *unnamedFiles) order(pids []int, before *unnamed) []int {
	rank := make(map[int]uint64, min(len(pids), maxRanked))
	for i, pid := range pids {
		if kept := before.holders[pid]; kept > 0 {
			rank[pid] = 1<<63 + kept
		} else if i < maxRanked && len(pids) > 1 {
			rank[pid] = f.written(pid)
		}
	}
	slices.SortStableFunc(pids, func(a, b int) int { return cmp.Compare(rank[b], rank[a]) })
	return pids
}

// all looks at every process: at a bounded number of threads and descriptors of each, and then at the rest.
func (f *unnamedFiles) all(ctx context.Context, pids []int) {
	var rest []int
	for _, pid := range pids {
		more, err := f.process(ctx, pid, firstRound)
		if err != nil {
			f.out.cut = true
			return
		}
		if more {
			rest = append(rest, pid)
		}
	}
	for _, pid := range rest {
		more, err := f.process(ctx, pid, lastRound)
		f.out.cut = f.out.cut || more || err != nil
		if err != nil {
			return
		}
	}
}

// isUnnamed reads what a link leads to, and reports whether it is a file without a name. That may be held up: a network file system is not
// asked for what it knows, but whether its file is there still (NFS, 9p: v6.12 fs/namei.c complete_walk, d_weak_revalidate), and its server
// may be gone.
func isUnnamed(dir int, name string, st *unix.Statx_t) bool {
	const flags, want = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS
	return unix.Statx(dir, name, flags, want, st) == nil && st.Nlink == 0
}

// count counts a file without a name, if it lies on a disk. ofProject tells its quota project.
func (f *unnamedFiles) count(st *unix.Statx_t, ofProject func() (uint32, bool)) {
	device := unix.Mkdev(st.Dev_major, st.Dev_minor)
	disk, ok := f.disk(device)
	id := [2]uint64{device, st.Ino}
	if !ok || f.seen[id] {
		return
	}
	before, taken := f.held[id]
	if taken && before.uid != f.uid {
		return // pods that share a file: it counts once
	}
	if f.member = f.member || f.isMember(); !f.member {
		return
	}
	if len(f.seen) < maxLinks { // beyond, each descriptor counts
		f.seen[id] = true
	}
	if taken || len(f.held) < maxLinks {
		f.held[id] = holding{f.uid, f.out.nth}
	}
	if disk == device && st.Mode&unix.S_IFMT == unix.S_IFREG && len(f.counted) > 0 {
		if id, ok := ofProject(); ok && f.counted[project{device, id}] {
			return
		}
	}
	sum := f.out.by[disk]
	sum.add(usage{bytes: st.Blocks * 512, inodes: 1})
	f.out.by[disk] = sum
	if _, known := f.out.holders[f.pid]; known || len(f.out.holders) < maxHolders {
		f.out.holders[f.pid] += st.Blocks * 512
	}
}

// isMember reports whether the process is in the pod's cgroup still: ids are used again.
func (f *unnamedFiles) isMember() bool {
	if f.belongs != nil {
		return f.belongs(f.pid, f.group)
	}
	member, err := owns(f.proc, f.group, f.pid)
	if err != nil {
		f.missed(err, f.pid)
	}
	return member
}

// disk is the disk that has the blocks of what lies on a device.
func (f *unnamedFiles) disk(device uint64) (uint64, bool) {
	if f.now[device] {
		return device, true
	}
	disk, known := f.upper[device]
	if dir := f.overlay(device); !known && dir != "" {
		if fd, err := f.host.open(dir, unix.O_PATH); err == nil {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil {
				disk = st.Dev
			}
			unix.Close(fd)
		}
		f.upper[device] = disk
	}
	return disk, f.now[disk]
}

// projectOf is the project that a file belongs to. That its owner keeps a lease on it does not hold this up.
func projectOf(dir int, name string) (id uint32, ok bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	attr, ok := xattrOf(fd)
	return attr.projid, ok
}
