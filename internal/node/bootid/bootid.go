// Package bootid tells one boot of the node from another.
package bootid

import (
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/base/atomicfile"
)

// longest is more than a UUID takes.
const longest = 64

// Uptime is how long this boot is ago, by CLOCK_BOOTTIME: nothing sets that clock, and it counts
// what the node sleeps (time_namespaces(7) shifts it; no runtime gives pods one of their own). 0:
// the kernel does not say.
func Uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// Read is the identity of this boot (drivers/char/random.c proc_do_uuid); proc is where /proc is
// mounted. Empty: the kernel does not say.
func Read(proc string) string {
	text, err := atomicfile.Read(filepath.Join(proc, "sys/kernel/random/boot_id"), longest, 0)
	id := strings.TrimSpace(string(text))
	if err != nil || strings.ContainsFunc(id, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '/'
	}) {
		return ""
	}
	return id
}
