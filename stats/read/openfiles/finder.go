package openfiles

import (
	"context"
	"maps"
	"path"
	"time"

	"jettison/cgroup"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/mounts"
	"jettison/stats/read/quota"
	"jettison/stats/read/walk"
)

// A look lasts one turn at most. After a look that was cut off, the next turn is twice as long.
const (
	unnamedTurn        = 2 * time.Second
	longestUnnamedTurn = 30 * time.Second
)

// Limits of a look, because a tenant controls the number of processes and files.
const (
	maxProcesses = 1 << 16 // processes of one pod; further ones are left out
	maxRanked    = 4096    // processes that are ordered by the bytes they have written
	// descriptors read per thread before every process had its turn
	maxFirst    = 1024
	maxHolders  = 64      // processes of one pod that are remembered
	maxInodes   = 1 << 16 // inodes remembered for one pod, and for all
	maxFileSets = 8       // descriptor tables read per process in that round; most processes have one
)

// KeepFor is the time for which a value stays valid after it was counted.
const KeepFor = time.Hour

// Finder finds files without a name: unlinked files that a process of a pod has open, maps or
// executes, or that are mounted for it. Directory walks miss them, and so do du(1) and the kubelet.
// It reads /proc/PID/fd, map_files, exe and mountinfo (kernel 6.12 and 6.1 alike), which show such
// files with a link count of 0 and their blocks. st_dev is the disk's or, for a file in a
// container's writable layer, the overlay's, and the upper directory of the overlay identifies the
// disk. Use a Finder from one goroutine.
//
// It does not wait long for calls that a process or its file server can block (guard). If it
// abandons a call, the result is a lower bound.
//
// It does not find files that are kept only by an io_uring, by a descriptor in transit through a
// socket, by an overlay that a pod has mounted itself, or by mounts in a namespace without a
// process.
type Finder struct {
	fs      *cgroup.FS
	roots   []string // cgroups with pods as children
	proc    string
	host    *hostroot.Root
	disks   func() map[uint64]bool          // devices that may be short
	pace    func(context.Context) error     // see walk.New
	Belongs func(pid int, name string) bool // nil: procfs.InCgroup; tests replace it

	walker           cgroup.Walker
	guard            guard
	buf              []byte
	overlays         map[uint64]string // upper directories of the host's overlays, by device, as of mounted
	mounted          time.Time
	hostMounts       []mounts.Mount        // of files without a name, as of mounted
	mountsIncomplete bool                  // the host has more mounts than were read
	held             map[[2]uint64]holding // inodes, by device and number

	// State of the current look.
	lookStart time.Time
	diskSet   map[uint64]bool // disks
	upper     map[uint64]uint64
	seen      map[[2]uint64]bool
	uid       string
	counted   map[quota.Project]bool
	out       *Kept
	steps     int
	group     string // base name of the pod's cgroup
	pid       int
	member    bool // pid is known to be in the pod's cgroup
	// devices by mount ID in the namespace of the thread being read; nil: not read yet
	mounts       map[uint64]uint64
	onDisk       bool                // the current descriptor is on a disk
	mountSpaces  map[mountSpace]bool // mountSpaces already searched
	mountsReread bool                // the host's mounts were read again for a missing one
}

// New returns a Finder for pods below the given cgroups. Call SetPace before the first look, and
// Close at the end.
func New(fs *cgroup.FS, roots []string, proc string, host *hostroot.Root,
	disks func() map[uint64]bool) *Finder {
	return &Finder{fs: fs, roots: roots, proc: proc, host: host, disks: disks,
		buf:   make([]byte, 16<<10),
		guard: guard{timeout: stuckTimeout}, held: map[[2]uint64]holding{}, seen: map[[2]uint64]bool{},
		mountSpaces: map[mountSpace]bool{}}
}

// Look finds the files without a name that a pod keeps, for one turn at most. group is the pod's
// cgroup as reported by the runtime, or empty. before is the result of the previous look. counted
// holds the quota projects for which the file system's own count is already used, because that
// count includes files without a name.
func (f *Finder) Look(ctx context.Context, uid, group string, counted map[quota.Project]bool,
	before *Kept) (out Kept) {
	out = Kept{byDevice: map[uint64]walk.Usage{}, turn: unnamedTurn, holders: map[int]uint64{},
		Time: time.Now(), number: before.number + 1}
	if before.cut {
		out.turn = min(2*before.turn, longestUnnamedTurn)
	}
	short, cancel := context.WithTimeout(ctx, out.turn)
	defer cancel()
	f.diskSet, f.upper, f.uid, f.counted, f.out = f.disks(), map[uint64]uint64{}, uid, counted, &out
	clear(f.seen)
	clear(f.mountSpaces)
	f.mountsReread = false
	if f.lookStart = time.Now(); f.lookStart.Sub(f.mounted) >= mounts.Every {
		f.readOverlays()
	}
	began := time.Now()
	for _, name := range f.groups(uid, group) {
		f.group = path.Base(name)
		f.searchAll(short, f.order(f.processes(name, began.Add(out.turn/4)), before))
	}
	f.countHostMounts(short)
	maps.DeleteFunc(f.held, func(id [2]uint64, h holding) bool {
		return h.uid == uid && !f.seen[id] && (!out.cut || out.number-h.look >= holdLooks)
	})
	if out.mountsIncomplete = f.mountsIncomplete; out.mountsIncomplete {
		out.markPartial()
	}
	if out.cut {
		out.keepLarger(before)
	}
	return out
}

// Forget drops the inodes of pods that are gone.
func (f *Finder) Forget(known map[string]bool) {
	maps.DeleteFunc(f.held, func(_ [2]uint64, h holding) bool { return !known[h.uid] })
}

// SetPace sets a function that is called regularly. It may sleep, and its error ends a look.
func (f *Finder) SetPace(pace func(context.Context) error) { f.pace = pace }

// CPUTime returns the CPU time of the helper threads, without the caller's own thread.
func (f *Finder) CPUTime() time.Duration { return f.guard.used() }

// Close ends the helpers and waits until their kernel calls return.
func (f *Finder) Close() { f.guard.close() }
