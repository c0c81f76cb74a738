package kill

import (
	"context"
	"errors"
	"os"
	"time"

	"jettison/cgroup"
	"jettison/reclaim"
)

// Page cache outlives the pod that filled it. It is charged to the cgroup, and to the ancestors
// once the cgroup is removed. Active page cache counts as used in the kubelet's formula (working
// set: usage without inactive_file). The death of a pod that reads a file repeatedly would then
// free nothing, and the agent would evict another pod (kernel 6.1: all of the file is active).
const (
	cacheLimit  = time.Second
	cacheEnough = 1 << 20  // bytes that may stay
	cacheTries  = 3        // attempts in a row without effect: the cache is dirty or in use
	cacheShared = 16 << 20 // bytes of shared memory above which plain reclaim could swap it out
)

// DropCache has the kernel reclaim the page cache of a dead victim and returns the number of bytes
// freed. It ends after a second, when ctx ends, or when stop returns true. Cache that other pods
// use mostly stays, because the kernel spares recently used pages. Without memory.reclaim (kernels
// before 5.19) it frees nothing. On a kernel that cannot reclaim page cache alone (6.1) it makes a
// single attempt if much shared memory is left.
func (v *Victim) DropCache(ctx context.Context, stop func() bool) (bytes uint64) {
	ctx, cancel := context.WithTimeout(ctx, cacheLimit)
	defer cancel()
	for _, p := range v.group.outside {
		if other, ok := p.(*Victim); ok {
			bytes += other.DropCache(ctx, stop)
		}
	}
	if !v.group.known {
		return bytes
	}
	d := &cacheDrop{group: &v.group.wait, stop: stop, requests: make(chan uint64, 1),
		answers: make(chan error, 1), plain: make(chan bool, 1)}
	v.life.retain()
	go d.write(v)
	defer close(d.requests)
	freed, err := d.run(ctx)
	if errors.Is(err, cgroup.ErrVanished) || errors.Is(err, errNoReclaim) || errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if freed > 0 || err != nil {
		v.steps.add(stepCache, int(freed>>20), err)
	}
	return bytes + freed
}

// errNoReclaim reports that memory.reclaim cannot be opened: the kernel has none.
var errNoReclaim = errors.New("no memory.reclaim")

// cacheDrop is the state of one DropCache. A goroutine writes the requests to the kernel and ends
// after its last write. The write may block on a disk or a file server, and the open on the lock of
// the directory, so nothing waits for that goroutine.
type cacheDrop struct {
	group    *cgroup.Group
	stop     func() bool
	requests chan uint64 // bytes to reclaim; closed after the last request; one slot, as the others
	answers  chan error
	plain    chan bool // sent with the first answer: the kernel accepts only a byte count
	buf      [8 << 10]byte
	stat     cgroup.MemoryStat
}

// write is a user of the victim until it ends.
func (d *cacheDrop) write(v *Victim) {
	defer v.release()
	r, err := v.group.wait.OpenReclaim()
	if err != nil {
		d.answers <- errNoReclaim
		return
	}
	defer r.Close()
	first := true
	for bytes := range d.requests {
		err := r.Reclaim(bytes, cgroup.SwappinessFile)
		if first {
			d.plain <- r.WithoutSwappiness()
		}
		first = false
		d.answers <- err
	}
}

// left returns the bytes of page cache in the cgroup.
func (d *cacheDrop) left() (uint64, error) {
	err := d.group.MemoryStat(d.buf[:], &d.stat)
	return d.stat.File - min(d.stat.File, d.stat.Shmem), err
}

func (d *cacheDrop) run(ctx context.Context) (freed uint64, err error) {
	left, err := d.left()
	chunk, first := uint64(reclaim.FirstMemoryChunk), true
	for tries := 0; err == nil && left > cacheEnough && tries < cacheTries && ctx.Err() == nil &&
		!d.stop(); {
		began := time.Now()
		d.requests <- min(left, chunk)
		select {
		case err = <-d.answers:
		case <-ctx.Done():
			return freed, ctx.Err()
		}
		if chunk = reclaim.NextMemoryChunk(chunk, time.Since(began)); errors.Is(err,
			cgroup.ErrNothingLeft) {
			err = nil
		}
		before := left
		if err == nil {
			left, err = d.left()
		}
		if tries++; left < before {
			freed, tries = freed+before-left, 0
		}
		if first && err == nil && <-d.plain && d.stat.Shmem > cacheShared {
			return freed, err
		}
		first = false
	}
	return freed, err
}
