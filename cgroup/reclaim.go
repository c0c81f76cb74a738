package cgroup

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNothingLeft: the kernel found less to reclaim than it was asked for, after going through the
// group again and again.
var ErrNothingLeft = errors.New("nothing left to reclaim")

// Swappiness says what memory.reclaim takes of a group, by the numbers of vm.swappiness.
type Swappiness int

// The ends of the scale, which are where the kernel begins, not where it ends (v6.12 mm/vmscan.c,
// get_scan_count, isolate_folios): without swap space there is nothing but page cache to take.
const (
	SwappinessFile Swappiness = 0   // page cache
	SwappinessAnon Swappiness = 200 // what goes to swap
)

// Reclaimer is memory.reclaim of one group, kept open. Close it. It is used by one goroutine at a
// time.
type Reclaimer struct {
	path string
	fd   int
	// plain: the kernel takes bytes alone. Written by Reclaim, which is the only one to find out.
	plain bool
	buf   []byte
}

// OpenReclaim opens memory.reclaim (since v5.19). os.ErrNotExist: the kernel has none, or the
// memory controller is off.
func (g *Group) OpenReclaim() (*Reclaimer, error) {
	const name = "memory.reclaim"
	fd, err := g.openFile(name, unix.O_WRONLY)
	if err != nil {
		return nil, err
	}
	return &Reclaimer{path: g.file(name), fd: fd, buf: make([]byte, 0, 64)}, nil
}

// Reclaim has the kernel take bytes of memory from the group and all below it, and returns when
// that is done: it may block for as long as the swap device takes. The kernel does not protect the
// group from this by its own memory.min and memory.low, nor by those of groups above it; only those
// below count (v6.12 mm/memcontrol.c, mem_cgroup_calculate_protection). While it is under way the
// group cannot be removed, and who removes it holds the lock that cgroup.kill of any group needs
// (kernfs_drain below cgroup_mutex): ask for little at a time.
//
// ErrNothingLeft: it got less than that. ErrVanished: the group is gone. A call that a signal
// interrupted is no error: how much it got, the kernel does not say. A swappiness that the kernel
// does not know (v6.1 knows none) is left out from its first refusal on.
func (r *Reclaimer) Reclaim(bytes uint64, s Swappiness) error {
	for {
		b := strconv.AppendUint(r.buf[:0], bytes, 10)
		named := !r.plain
		if named {
			b = strconv.AppendInt(append(b, " swappiness="...), int64(s), 10)
		}
		// Never package os here: a file that answers EAGAIN would wait in the netpoller for ever.
		_, err := unix.Write(r.fd, b)
		switch {
		case err == nil || err == unix.EINTR:
			return nil
		case err == unix.EINVAL && named:
			r.plain = true
			continue
		case err == unix.EAGAIN:
			err = ErrNothingLeft
		default:
			err = vanished(err)
		}
		return fmt.Errorf("reclaim %d bytes by cgroup %s: %w", bytes, r.path, err)
	}
}

// Plain reports whether the kernel was found to take bytes alone: what it takes then may be
// anonymous or shared, and go to swap.
func (r *Reclaimer) Plain() bool { return r.plain }

// Close gives the descriptor back.
func (r *Reclaimer) Close() {
	if r.fd >= 0 {
		unix.Close(r.fd)
		r.fd = -1
	}
}
