package cgroup

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNothingLeft: the kernel found less to reclaim than requested, after several passes over
// the group.
var ErrNothingLeft = errors.New("nothing left to reclaim")

// Swappiness selects the kind of memory that memory.reclaim reclaims, in the units of
// vm.swappiness.
type Swappiness int

// The ends of the scale. They are preferences: the kernel starts with that kind of memory and may
// continue with the other (v6.12 mm/vmscan.c, get_scan_count, isolate_folios). Without swap space
// it can reclaim only page cache.
const (
	SwappinessFile Swappiness = 0   // page cache
	SwappinessAnon Swappiness = 200 // swap-backed memory
)

// Reclaimer is memory.reclaim of one group, kept open. Use it from one goroutine at a time, and
// close it.
type Reclaimer struct {
	path string
	fd   int
	// noSwappiness: the kernel accepts only a number of bytes. Reclaim detects and sets this.
	noSwappiness bool
	buf          []byte
}

// OpenReclaim opens memory.reclaim (since v5.19). os.ErrNotExist: the kernel has no such file,
// or the memory controller is off.
func (g *Group) OpenReclaim() (*Reclaimer, error) {
	const name = "memory.reclaim"
	fd, err := g.openFile(name, unix.O_WRONLY)
	if err != nil {
		return nil, err
	}
	return &Reclaimer{path: g.file(name), fd: fd, buf: make([]byte, 0, 64)}, nil
}

// Reclaim makes the kernel reclaim the given number of bytes from the group and its descendants,
// and returns when that is done. It may block as long as the swap device needs. Only memory.min and
// memory.low of descendants protect memory from this reclaim, not those of the group or its
// ancestors (v6.12 mm/memcontrol.c, mem_cgroup_calculate_protection). While the reclaim runs, the
// group cannot be removed. A process that tries to remove it holds the lock that cgroup.kill of any
// group needs (kernfs_drain below cgroup_mutex). Therefore request little at a time.
//
// ErrNothingLeft: the kernel reclaimed less. ErrVanished: the group is gone. A call that a signal
// interrupts returns no error; the reclaimed amount is then unknown. If the kernel rejects the
// swappiness (v6.1 does not support it), Reclaim omits it from then on.
func (r *Reclaimer) Reclaim(bytes uint64, s Swappiness) error {
	for {
		b := strconv.AppendUint(r.buf[:0], bytes, 10)
		named := !r.noSwappiness
		if named {
			b = strconv.AppendInt(append(b, " swappiness="...), int64(s), 10)
		}
		// Never use package os here: a file that returns EAGAIN would wait in the netpoller forever.
		_, err := unix.Write(r.fd, b)
		switch {
		case err == nil || err == unix.EINTR:
			return nil
		case err == unix.EINVAL && named:
			r.noSwappiness = true
			continue
		case err == unix.EAGAIN:
			err = ErrNothingLeft
		default:
			err = vanished(err)
		}
		return fmt.Errorf("reclaim %d bytes by cgroup %s: %w", bytes, r.path, err)
	}
}

// WithoutSwappiness reports whether the kernel has rejected a swappiness. The reclaimed memory may
// then be anonymous or shared memory that goes to swap.
func (r *Reclaimer) WithoutSwappiness() bool { return r.noSwappiness }

// Close closes the descriptor.
func (r *Reclaimer) Close() {
	if r.fd >= 0 {
		unix.Close(r.fd)
		r.fd = -1
	}
}
