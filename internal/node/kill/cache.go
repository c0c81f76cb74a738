package kill

import (
	"context"
	"errors"
	"time"

	"jettison/cgroup"
	"jettison/reclaim"
)

// Page cache outlives the pod that filled it: it is charged to the cgroup, and to those above once
// that is gone, and what is active of it counts as used by the kubelet's formula (working set:
// usage without inactive_file). A pod that reads a file over and over returns nothing by its death,
// then, and the next one dies for that (kernel 6.1: all of the file is active).
const (
	cacheLimit  = time.Second
	cacheEnough = 1 << 20  // that may stay
	cacheTries  = 3        // in a row of which nothing comes: it is dirty, or others use it
	cacheShared = 16 << 20 // of shared memory that must not go to swap instead
)

// DropCache has the kernel take the page cache of a victim that is dead, for a second at most and
// until stop says so, and returns how many bytes that were. What other pods use of it stays as a
// rule, for the kernel spares what was used lately. A kernel without memory.reclaim (before 5.19)
// takes nothing; one that cannot be told to take page cache alone (6.1) nothing where much shared
// memory is left.
func (v *Victim) DropCache(ctx context.Context, stop func() bool) (bytes uint64) {
	if !v.group.known {
		return 0
	}
	r, err := v.group.wait.OpenReclaim()
	if err != nil {
		return 0 // the kernel has none, or the group is gone
	}
	d := &dropping{group: &v.group.wait, stop: stop, asked: make(chan uint64, 1),
		answers: make(chan error, 1), plain: make(chan bool, 1)}
	go d.write(r)
	defer close(d.asked)
	ctx, cancel := context.WithTimeout(ctx, cacheLimit)
	defer cancel()
	took, err := d.run(ctx)
	if errors.Is(err, cgroup.ErrVanished) {
		err = nil
	}
	if took > 0 || err != nil {
		v.steps.add(stepCache, int(took>>20), err)
	}
	return took
}

// dropping is one DropCache. What the kernel is asked for is written by a goroutine that ends with
// its write, whenever that is: it may wait for a disk or a file server, and nothing waits for it.
type dropping struct {
	group   *cgroup.Group
	stop    func() bool
	asked   chan uint64 // closed when nothing more is; one slot, as each of the others
	answers chan error
	plain   chan bool // with the first answer: the kernel takes bytes alone
	buf     [8 << 10]byte
	stat    cgroup.MemoryStat
}

func (d *dropping) write(r *cgroup.Reclaimer) {
	defer r.Close()
	first := true
	for bytes := range d.asked {
		err := r.Reclaim(bytes, cgroup.SwappinessFile)
		if first {
			d.plain <- r.Plain()
		}
		first = false
		d.answers <- err
	}
}

// left is how much page cache there is.
func (d *dropping) left() (uint64, error) {
	err := d.group.MemoryStat(d.buf[:], &d.stat)
	return d.stat.File - min(d.stat.File, d.stat.Shmem), err
}

func (d *dropping) run(ctx context.Context) (took uint64, err error) {
	has, err := d.left()
	chunk, first := uint64(reclaim.FirstMemoryChunk), true
	for tries := 0; err == nil && has > cacheEnough && tries < cacheTries && ctx.Err() == nil &&
		!d.stop(); {
		began := time.Now()
		d.asked <- min(has, chunk)
		select {
		case err = <-d.answers:
		case <-ctx.Done():
			return took, ctx.Err()
		}
		if chunk = reclaim.NextMemoryChunk(chunk, time.Since(began)); errors.Is(err,
			cgroup.ErrNothingLeft) {
			err = nil
		}
		before := has
		if err == nil {
			has, err = d.left()
		}
		if tries++; has < before {
			took, tries = took+before-has, 0
		}
		if first && <-d.plain && d.stat.Shmem > cacheShared {
			return took, err
		}
		first = false
	}
	return took, err
}
