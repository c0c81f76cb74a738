package procfs

import (
	"bytes"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
)

// ParseZoneInfo sums the free pages on per-CPU lists: the "count:" lines of /proc/zoneinfo's
// pagesets (mm/vmstat.c, zoneinfo_show_print). MemFree and MemAvailable do not count them, and
// since v6.7 a CPU may keep an eighth of a zone there (mm/page_alloc.c,
// zone_set_pageset_high_and_batch): most of the memory that a killed process frees stays there for
// seconds. The kernel takes these pages back before an allocation fails (drain_all_pages).
func ParseZoneInfo(b []byte) (pages uint64, err error) {
	found := false
	for line := range bytes.Lines(b) {
		number, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("count:"))
		if !ok {
			continue
		}
		v, ok := cgroup.Decimal(bytes.TrimSpace(number))
		if !ok || v > math.MaxUint32 || pages > math.MaxUint64-v {
			return 0, fmt.Errorf("%w: line %.60q", ErrMalformed, line)
		}
		pages, found = pages+v, true
	}
	if !found {
		return 0, fmt.Errorf("%w: no pageset", ErrMalformed)
	}
	return pages, nil
}

// maxZoneInfo is the maximum size of zoneinfo. The file has some 150 bytes for each CPU and zone.
const maxZoneInfo = 4 << 20

// PerCPUFree reads the bytes of free memory on per-CPU lists. It costs some microseconds for
// each CPU, too much for the cheap look.
func (p *Proc) PerCPUFree() (uint64, error) {
	if p.zones < 0 {
		fd, err := unix.Open(p.mount+"/zoneinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, fmt.Errorf("open %s/zoneinfo: %w", p.mount, err)
		}
		p.zones = fd
	}
	for n := 0; ; {
		if n == len(p.zoneinfo) {
			if n >= maxZoneInfo {
				return 0, fmt.Errorf("read %s/zoneinfo: longer than %d bytes", p.mount, maxZoneInfo)
			}
			p.zoneinfo = append(p.zoneinfo, make([]byte, max(16<<10, n))...)
		}
		m, err := unix.Pread(p.zones, p.zoneinfo[n:], int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read %s/zoneinfo: %w", p.mount, err)
		}
		n += m
		if m == 0 {
			pages, err := ParseZoneInfo(p.zoneinfo[:n])
			if err != nil {
				return 0, fmt.Errorf("parse %s/zoneinfo: %w", p.mount, err)
			}
			return pages * uint64(os.Getpagesize()), nil
		}
	}
}
