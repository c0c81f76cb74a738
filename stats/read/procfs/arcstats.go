package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// arcStats has the statistics of ZFS' cache, the ARC.
const arcStats = "spl/kstat/zfs/arcstats"

// FindARC opens the statistics of the ARC, unless they are open. It returns false without ZFS.
func (p *Proc) FindARC() (bool, error) {
	if p.arc >= 0 {
		return true, nil
	}
	name := filepath.Join(p.mount, arcStats)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", name, err)
	}
	p.arc = fd
	return true, nil
}

// ShrinkableARC reads how many bytes of the ARC the kernel takes back when memory is short; absent
// without ZFS, and before FindARC. It does not allocate. buf is scratch space of at least 8 KiB.
func (p *Proc) ShrinkableARC(buf []byte) (stats.Opt[uint64], error) {
	if p.arc < 0 {
		return stats.Opt[uint64]{}, nil
	}
	n := 0
	for n < len(buf) { // the kernel returns a page at a time
		more, err := unix.Pread(p.arc, buf[n:], int64(n))
		if err != nil {
			return stats.Opt[uint64]{}, fmt.Errorf("read %s/%s: %w", p.mount, arcStats, err)
		}
		if more == 0 {
			break
		}
		n += more
	}
	v, err := ParseARCStats(buf[:n])
	if err != nil {
		return stats.Opt[uint64]{}, fmt.Errorf("parse %s/%s: %w", p.mount, arcStats, err)
	}
	return stats.Some(v), nil
}

// ParseARCStats returns the shrinkable bytes from arcstats, lines of "NAME TYPE VALUE" (OpenZFS 2.2
// module/zfs/arc.c arc_stats): the size above its minimum, and at most the evictable buffers if the
// file lists them, because pinned and dirty ones stay. It does not allocate.
func ParseARCStats(b []byte) (uint64, error) {
	var size, least stats.Opt[uint64]
	evictable, lists := uint64(0), 0
	for line := range bytes.Lines(b) {
		name, rest, _ := bytes.Cut(line, []byte(" "))
		var to *stats.Opt[uint64]
		var one stats.Opt[uint64]
		switch string(name) {
		case "size":
			to = &size
		case "c_min":
			to = &least
		case "mru_evictable_data", "mru_evictable_metadata", "mfu_evictable_data",
			"mfu_evictable_metadata":
			to = &one
		default:
			continue
		}
		value := bytes.TrimSpace(rest)
		value = value[bytes.LastIndexByte(value, ' ')+1:]
		v, ok := cgroup.Decimal(value)
		if !ok {
			return 0, fmt.Errorf("%w: %.60q", ErrMalformed, line)
		}
		*to = stats.Some(v)
		if one.OK {
			evictable, lists = stats.SaturatingAdd(evictable, v), lists+1
		}
	}
	if !size.OK || !least.OK {
		return 0, fmt.Errorf("%w: no size or no c_min", ErrMalformed)
	}
	shrinkable := size.V - min(least.V, size.V)
	if lists == 4 {
		shrinkable = min(shrinkable, evictable)
	}
	return shrinkable, nil
}
