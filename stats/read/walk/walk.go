package walk

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Limits of the memory and descriptors of a walk, because a tenant controls the number and depth of
// directories.
const (
	// inodes with several names that are remembered per tree; for further ones, each name counts its
	// share
	maxLinks = 1 << 16
	// names of subdirectories kept per level; the rest is listed after these were walked
	maxBatch  = 1024
	minBatch  = 4     // minimum per level, even if the levels above already keep maxNames
	maxNames  = 8192  // names kept in total, without the minBatch of each level
	openAbove = 64    // levels whose descriptors stay open
	maxLevels = 10000 // levels kept completely; deeper levels keep less (deep.go)
	walkTries = 3     // walks of a tree that changes meanwhile
)

// Walker measures directory trees. It follows no symbolic link and stays on one device. A large
// tree needs no more descriptors than a small one, and only a few hundred bytes more per level.
//
// From a directory of the first openAbove levels it returns to the parent by the parent's
// descriptor, regardless of renames. From deeper directories it returns through "..". If ".." leads
// elsewhere, the directory was moved, and the walk continues in the lowest ancestor that it finds
// by name from the last open descriptor. It abandons the rest of the levels that were moved. After
// walkTries walks with such moves, the largest result counts, as a lower bound.
//
// Directories that are deeper than maxDepth or unreadable are left out, and the rest counts as a
// lower bound: such a directory must not hide the usage of the whole tree. As with du(1), an entry
// moved within the tree during the walk may be counted twice or not at all.
type Walker struct {
	buf      []byte             // directory entries
	links    map[[2]uint64]bool // counted inodes with several names, at most linkRoom
	linkRoom int
	shares   linkShares                  // of files that did not fit into links
	pace     func(context.Context) error // called regularly; may sleep; its error ends the walk
	entries  int                         // since pace was last called
	seen     uint64                      // entries read since the walker was created
	levels   []level                     // from the top of the tree to the current directory
	names    int                         // number of names in level.below of all levels
	moved    bool                        // the walk met a directory that was moved away
	fault    error                       // the first error that left out a part
	ended    bool                        // pace ended the walk
	bounds   Bounds
}

// New returns a walker that calls pace regularly.
func New(pace func(context.Context) error) *Walker { return NewWithin(pace, DefaultBounds()) }

// NewWithin returns a walker with the given bounds.
func NewWithin(pace func(context.Context) error, bounds Bounds) *Walker {
	return &Walker{buf: make([]byte, 32<<10), links: map[[2]uint64]bool{}, linkRoom: maxLinks, pace: pace,
		bounds: bounds}
}

// Tree measures the directory behind a descriptor, which stays open. With an error it still returns
// the usage counted so far, a lower bound.
func (w *Walker) Tree(ctx context.Context, dir int) (most Usage, err error) {
	for range walkTries {
		u, err := w.walkOnce(ctx, dir)
		u.Partial = u.Partial || err != nil
		if u.Bytes, u.Inodes = max(u.Bytes, most.Bytes), max(u.Inodes, most.Inodes); err != nil ||
			!w.moved {
			return u, err
		}
		most = u
	}
	return most, nil
}

// walkOnce walks a tree once.
func (w *Walker) walkOnce(ctx context.Context, dir int) (u Usage, err error) {
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
	for w.noteFault(w.enter(ctx, top, "", &st, &u)); len(w.levels) > 0 && !w.ended; {
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
		w.noteFault(err)
	}
	return u, w.fault
}

// noteFault records that a part was not measured, if err is set. The walk continues with the
// rest.
func (w *Walker) noteFault(err error) {
	// the error that ended the walk replaces earlier ones
	if err != nil && (w.fault == nil || w.ended) {
		w.fault = err
	}
}

// Own measures a directory without its subdirectories, and returns their names.
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
		w.noteFault(w.list(ctx, &l, &u))
		below = append(below, l.below...)
		w.names = 0
	}
	// The caller counts the subdirectories with their own inodes.
	u.Add(Allocated(&st))
	u.Bytes, u.Inodes, u.Partial = u.Bytes-l.dirs.Bytes, u.Inodes-l.dirs.Inodes, w.fault != nil
	return u, below, w.fault
}

// Seen returns the number of entries read since the walker was created.
func (w *Walker) Seen() uint64 { return w.seen }
