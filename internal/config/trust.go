package config

import (
	"fmt"
	"os"
	"syscall"
)

// othersWrite is the permission of everybody to write.
const othersWrite = 0o002

// trusted refuses a regular file that others than root and this process's own user may have written: it decides which processes a
// privileged one kills. A pipe has been opened for this process by whoever started it.
func trusted(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return nil
	}
	if info.Mode().Perm()&othersWrite != 0 {
		return fmt.Errorf("config %s: every user may write to it (%v), and it decides what is killed: chmod o-w %s", path, info.Mode(), path)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("config %s: it belongs to user %d, and it decides what is killed: chown root %s", path, s.Uid, path)
	}
	return nil
}
