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

// A look takes a turn at most. One that was cut off gets twice as much the next time.
const (
	unnamedTurn        = 2 * time.Second
	longestUnnamedTurn = 30 * time.Second
)

// What a tenant decides - how many processes, how many files - must not decide what a look costs.
const (
	maxProcesses = 1 << 16 // of one pod; beyond, they are left out
	maxRanked    = 4096    // of those are put in order by what they have written
	// descriptors of a thread that are looked at before every process had its turn
	maxFirst    = 1024
	maxHolders  = 64      // remembered of one pod
	maxInodes   = 1 << 16 // remembered of one pod, and of all
	maxFileSets = 8       // of the threads of one process, likewise; most have one
)

// KeepFor is how long after it was counted a figure counts.
const KeepFor = time.Hour

// Finder finds files without a name: unlinked, but open or mapped by a process of a pod, its
// program, or mounted for it. No walk of directories sees them, nor do du(1) and the kubelet. They
// are seen through /proc/PID/fd, map_files, exe and mountinfo as the kernel has them (kernel 6.12
// and 6.1 alike): with a link count of 0 and their blocks; st_dev is that of the disk, and of a
// file in a container's writable layer that of the overlay, whose upper directory says which disk
// it is. It is for one goroutine.
//
// What a process, or who serves it files, can hold up is not waited for (guard): then what is found
// is a lower bound.
//
// Not seen: what only an io_uring, a descriptor on its way through a socket, an overlay that a pod
// has mounted for itself, or mounts that no process is in keep.
type Finder struct {
	fs      *cgroup.FS
	roots   []string // cgroups whose children are pods
	proc    string
	host    *hostroot.Root
	disks   func() map[uint64]bool          // devices that may be short
	pace    func(context.Context) error     // as the walker's
	Belongs func(pid int, name string) bool // procfs.InCgroup (nil), or a test's

	walker   cgroup.Walker
	guard    guard
	buf      []byte
	overlays map[uint64]string // upper directories of the host's overlays, by device, as of mounted
	mounted  time.Time
	hosts    []mounts.Mount        // of files without a name, as of mounted
	lacks    bool                  // the host has more mounts than were read then
	held     map[[2]uint64]holding // inodes, by device and number

	// Of the look under way.
	began   time.Time
	now     map[uint64]bool // disks
	upper   map[uint64]uint64
	seen    map[[2]uint64]bool
	uid     string
	counted map[quota.Project]bool
	out     *Kept
	steps   int
	group   string // base name of the pod's cgroup
	pid     int
	member  bool // pid was found to be in it
	// of the thread whose descriptors are looked at: their devices, by id; nil: not read yet
	mounts map[uint64]uint64
	onDisk bool                // the descriptor looked at is on one
	spaces map[mountSpace]bool // whose mounts were gone through
	again  bool                // the host's mounts were read anew for one that was not among them
}

// New makes a Finder of pods below these cgroups. It needs SetPace before the first look; Close it.
func New(fs *cgroup.FS, roots []string, proc string, host *hostroot.Root,
	disks func() map[uint64]bool) *Finder {
	return &Finder{fs: fs, roots: roots, proc: proc, host: host, disks: disks,
		buf:   make([]byte, 16<<10),
		guard: guard{patience: stuckPatience}, held: map[[2]uint64]holding{}, seen: map[[2]uint64]bool{},
		spaces: map[mountSpace]bool{}}
}

// Look finds what a pod's processes keep, for a turn at most. group is its cgroup as the runtime
// names it, empty: it does not. before is what the last look has found. counted are the projects
// whose usage the file system itself has told already, files without a name included.
func (f *Finder) Look(ctx context.Context, uid, group string, counted map[quota.Project]bool,
	before *Kept) (out Kept) {
	out = Kept{by: map[uint64]walk.Usage{}, turn: unnamedTurn, holders: map[int]uint64{},
		Time: time.Now(), nth: before.nth + 1}
	if before.cut {
		out.turn = min(2*before.turn, longestUnnamedTurn)
	}
	short, cancel := context.WithTimeout(ctx, out.turn)
	defer cancel()
	f.now, f.upper, f.uid, f.counted, f.out = f.disks(), map[uint64]uint64{}, uid, counted, &out
	clear(f.seen)
	clear(f.spaces)
	f.again = false
	if f.began = time.Now(); f.began.Sub(f.mounted) >= mounts.Every {
		f.readOverlays()
	}
	began := time.Now()
	for _, name := range f.groups(uid, group) {
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

// Forget drops the inodes of pods that are gone.
func (f *Finder) Forget(known map[string]bool) {
	maps.DeleteFunc(f.held, func(_ [2]uint64, h holding) bool { return !known[h.uid] })
}

// SetPace sets what is called now and then: it may sleep, and its error ends a look.
func (f *Finder) SetPace(pace func(context.Context) error) { f.pace = pace }

// CPUTime is what its helpers have used. The caller's own thread has used more.
func (f *Finder) CPUTime() time.Duration { return f.guard.used() }

// Close ends its helpers, once the kernel has let go of them.
func (f *Finder) Close() { f.guard.close() }
