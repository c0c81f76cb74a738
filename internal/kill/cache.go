package kill

import (
	"context"
	"errors"
	"time"

	"jettison/cgroup"
)

// Page cache outlives the pod that filled it: it is charged to the cgroup, and to those above once that is gone, and what is active of it
// counts as used by the kubelet's formula (working set: usage without inactive_file). A pod that reads a file over and over returns nothing
// by its death, then, and the next one dies for that (kernel 6.1: all of the file is active).
const (
	cacheChunk  = 8 << 20 // while one is under way the group cannot be removed
	cacheLimit  = time.Second
	cacheEnough = 1 << 20 // that may stay
	cacheTries  = 3       // in a row of which nothing comes: it is dirty, or others use it
)

// DropCache has the kernel take the page cache of a victim that is dead, for a second at most, and returns how many bytes that were. What
// other pods use of it stays as a rule, for the kernel spares what was used lately. A kernel without memory.reclaim (before 5.19) takes
// nothing.
func (v *Victim) DropCache(ctx context.Context) (bytes uint64) {
	if v.group == nil {
		return 0
	}
	took, err := v.dropCache(ctx, time.Now().Add(cacheLimit))
	if took > 0 || err != nil {
		v.steps.add(stepCache, int(took>>20), err)
	}
	return took
}

func (v *Victim) dropCache(ctx context.Context, until time.Time) (took uint64, err error) {
	r, err := v.group.OpenReclaim()
	if err != nil {
		return 0, nil // the kernel has none, or the group is gone
	}
	defer r.Close()
	buf := make([]byte, 8<<10)
	var stat cgroup.MemoryStat
	left := func() (uint64, error) {
		err := v.group.MemoryStat(buf, &stat)
		return stat.File - min(stat.File, stat.Shmem), err
	}
	has, err := left()
	for tries := 0; err == nil && has > cacheEnough && tries < cacheTries && ctx.Err() == nil && time.Now().Before(until); {
		if err = r.Reclaim(min(has, cacheChunk), cgroup.SwappinessFile); errors.Is(err, cgroup.ErrNothingLeft) {
			err = nil
		}
		before := has
		if err == nil {
			has, err = left()
		}
		if tries++; has < before {
			took, tries = took+before-has, 0
		}
	}
	if errors.Is(err, cgroup.ErrVanished) {
		err = nil
	}
	return took, err
}
