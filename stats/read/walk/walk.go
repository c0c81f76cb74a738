package walk

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// What a tenant decides - how many directories, how deep - must not decide how much memory and how
// many descriptors a walk needs.
const (
	// inodes with several names that are remembered of one tree; beyond, each name counts for its
	// share
	maxLinks = 1 << 16
	// names of directories kept of one level; the rest is listed when those are done
	maxBatch  = 1024
	minBatch  = 4     // the same, where the levels above keep maxNames already
	maxNames  = 8192  // names kept of all levels together, but for the minBatch of each
	openAbove = 64    // levels whose descriptors stay open
	maxLevels = 10000 // that are kept; beyond, the walk goes on with less (deep.go)
	walkTries = 3     // for a tree that changes
)

// Walker measures directory trees. It follows no symbolic link, leaves no device, and needs neither
// more descriptors nor, but for a few hundred bytes a level, more memory for a large tree than for
// a small one.
//
// From a directory of the first openAbove levels it returns to the one above by that one's
// descriptor, whatever was renamed in between. Deeper ones return by "..". Where that leads
// elsewhere, the directory was moved, and the walk goes on above it, which it finds by name from
// the last descriptor on. Of levels that are not where they were, what is left is given up, and
// after walkTries walks that met this the largest counts, as a lower bound. What is nested deeper
// than maxDepth, or cannot be read, is left out, and the rest counts, as a lower bound too: a part
// must not take a whole tree out of its pod's account. As with du(1), what is moved from one place
// of a tree to another while it is walked may be counted twice or not at all.
type Walker struct {
	buf     []byte             // directory entries
	links   map[[2]uint64]bool // inodes with several names that were counted, room of them at most
	room    int
	shares  linkShares                  // of those for which there was no room in links
	pace    func(context.Context) error // called now and then; may sleep; its error ends the walk
	entries int                         // since pace was last called
	seen    uint64                      // entries looked at since the walker was made
	levels  []level                     // from the top of the tree to where the walk is
	names   int                         // in below of all levels
	moved   bool                        // the walk met a directory that was moved away
	fault   error                       // the first that made it leave something out
	ended   bool                        // pace ended it
	bounds  Bounds
}

// New makes a walker that calls pace now and then.
func New(pace func(context.Context) error) *Walker { return NewWithin(pace, DefaultBounds()) }

// NewWithin makes a walker with bounds of its own.
func NewWithin(pace func(context.Context) error, bounds Bounds) *Walker {
	return &Walker{buf: make([]byte, 32<<10), links: map[[2]uint64]bool{}, room: maxLinks, pace: pace,
		bounds: bounds}
}

// Tree measures the directory behind a descriptor, which stays open. Beside an error is what was
// counted all the same, a lower bound.
func (w *Walker) Tree(ctx context.Context, dir int) (most Usage, err error) {
	for range walkTries {
		u, err := w.once(ctx, dir)
		u.Partial = u.Partial || err != nil
		if u.Bytes, u.Inodes = max(u.Bytes, most.Bytes), max(u.Inodes, most.Inodes); err != nil ||
			!w.moved {
			return u, err
		}
		most = u
	}
	return most, nil
}

// once walks a tree once.
func (w *Walker) once(ctx context.Context, dir int) (u Usage, err error) {
	clear(w.links)
	w.shares = linkShares{}
	w.levels, w.names, w.moved, w.fault, w.ended = w.levels[:0], 0, false, nil, false
	defer w.leave(0)
	top, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return u, fmt.Errorf("open directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(top, &st); err != nil {
		unix.Close(top)
		return u, fmt.Errorf("stat directory: %w", err)
	}
	u.Add(Allocated(&st))
	for w.leaveOut(w.enter(ctx, top, "", &st, &u)); len(w.levels) > 0 && !w.ended; {
		l := &w.levels[len(w.levels)-1]
		switch n := len(l.below); {
		case n > 0:
			name := l.below[n-1]
			l.below[n-1] = ""
			l.below = l.below[:n-1]
			w.names--
			err = w.descend(ctx, name, &u)
		case l.more:
			err = w.list(ctx, l, &u)
		default:
			err = w.ascend(ctx, &u)
		}
		w.leaveOut(err)
	}
	return u, w.fault
}

// leaveOut takes that a part was not measured, if there was an error. The walk goes on with the
// rest.
func (w *Walker) leaveOut(err error) {
	if err != nil && (w.fault == nil || w.ended) { // its end is what matters most
		w.fault = err
	}
}

// Own measures a directory without those in it, and names them.
func (w *Walker) Own(ctx context.Context, dir int) (u Usage, below []string, err error) {
	clear(w.links)
	w.shares = linkShares{}
	w.names = 0
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return u, nil, fmt.Errorf("stat directory: %w", err)
	}
	l := level{device: st.Dev, fd: dir, more: true}
	w.fault, w.ended = nil, false
	for l.more && !w.ended {
		w.leaveOut(w.list(ctx, &l, &u))
		below = append(below, l.below...)
		w.names = 0
	}
	// What is in them counts with them, their own inodes too.
	u.Add(Allocated(&st))
	u.Bytes, u.Inodes, u.Partial = u.Bytes-l.dirs.Bytes, u.Inodes-l.dirs.Inodes, w.fault != nil
	return u, below, w.fault
}

// Seen is how many entries were looked at since the walker was made.
func (w *Walker) Seen() uint64 { return w.seen }
