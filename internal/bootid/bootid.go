// Package bootid tells one boot of the node from another.
package bootid

import (
	"path/filepath"
	"strings"

	"jettison/internal/wholefile"
)

// longest is more than a UUID takes.
const longest = 64

// Read is the identity of this boot (drivers/char/random.c proc_do_uuid); proc is where /proc is mounted. Empty: the kernel does not say.
func Read(proc string) string {
	text, err := wholefile.Read(filepath.Join(proc, "sys/kernel/random/boot_id"), longest, 0)
	id := strings.TrimSpace(string(text))
	if err != nil || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
		return ""
	}
	return id
}
