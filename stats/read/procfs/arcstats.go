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

// ARC reads the statistics of ZFS' cache. A read waits for the lock of the file, which another reader
// may hold while its cgroup's CPU limit stops it. Use an ARC from one goroutine at a time, and call
// Close.
type ARC struct {
	name string
	fd   int // -1: not open
	buf  []byte
}

// ARC returns a reader of the statistics; nil without ZFS, and in a container whose meminfo is not the
// kernel's: the ARC is its host's.
func (p *Proc) ARC() *ARC {
	name := filepath.Join(p.mount, arcStats)
	if _, err := os.Stat(name); err != nil || p.virtual {
		return nil
	}
	return &ARC{name: name, fd: -1, buf: make([]byte, 32<<10)}
}

// Shrinkable reads how many bytes of the ARC the kernel takes back when memory is short. It opens the
// file again after an error: its descriptor is invalid once the module was loaded again.
func (a *ARC) Shrinkable() (uint64, error) {
	if a.fd < 0 {
		fd, err := unix.Open(a.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, os.ErrNotExist) { // the module was unloaded, and its cache is empty
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("open %s: %w", a.name, err)
		}
		a.fd = fd
	}
	n := 0
	for n < len(a.buf) { // the kernel returns a page at a time
		more, err := unix.Pread(a.fd, a.buf[n:], int64(n))
		if err != nil { // EIO after the module was loaded again
			a.Close()
			return 0, fmt.Errorf("read %s: %w", a.name, err)
		}
		if more == 0 {
			break
		}
		n += more
	}
	v, err := ParseARCStats(a.buf[:n])
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", a.name, err)
	}
	return v, nil
}

// Close closes the file.
func (a *ARC) Close() {
	if a.fd >= 0 {
		unix.Close(a.fd)
		a.fd = -1
	}
}

// ParseARCStats returns the shrinkable bytes from arcstats, lines of "NAME TYPE VALUE" (OpenZFS 2.2
// module/zfs/arc.c arc_stats): the size above its minimum, without what exceeds its maximum, which ZFS
// fails to evict (openzfs#17052), and at most the evictable buffers if the file lists them, because
// pinned and dirty ones stay. It does not allocate.
func ParseARCStats(b []byte) (uint64, error) {
	var size, least, most stats.Opt[uint64]
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
		case "c_max":
			to = &most
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
	if most.OK {
		size.V = min(size.V, most.V)
	}
	shrinkable := size.V - min(least.V, size.V)
	if lists == 4 {
		shrinkable = min(shrinkable, evictable)
	}
	return shrinkable, nil
}
