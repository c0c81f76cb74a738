// Package bootid identifies the current boot of the node, and returns the time since it.
package bootid

import (
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/base/atomicfile"
)

// maxIDSize exceeds the size of a UUID.
const maxIDSize = 64

// Uptime returns the time since this boot, by CLOCK_BOOTTIME: no process can set that clock, and it
// includes time in which the node was suspended. time_namespaces(7) shifts it, but no runtime gives
// pods their own. 0: the kernel does not provide it.
func Uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// Read returns the ID of this boot (drivers/char/random.c proc_do_uuid); proc is the mount of
// /proc. Empty: the kernel does not provide it.
func Read(proc string) string {
	text, err := atomicfile.Read(filepath.Join(proc, "sys/kernel/random/boot_id"), maxIDSize, 0)
	id := strings.TrimSpace(string(text))
	if err != nil || strings.ContainsFunc(id, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '/'
	}) {
		return ""
	}
	return id
}
