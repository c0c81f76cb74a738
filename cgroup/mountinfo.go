package cgroup

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// device is the device number of the hierarchy as mountinfo writes it; empty if it cannot be had.
func (fs *FS) device() string {
	var st unix.Stat_t
	if unix.Fstat(fs.fd, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
}

// escape is how mountinfo writes the path of a mount (v6.12 fs/proc_namespace.c, show_mountinfo).
var escape = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)

// mountOptions finds the options of a cgroup v2 superblock in mountinfo (proc(5)):
//
//	36 35 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
//
// It takes the mount of that device, for all mounts of one superblock have its options in common, or else the last one at
// that path, which covers those before it.
func mountOptions(mountinfo, path, device string) (options string, ok bool) {
	path = escape.Replace(path)
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if !found || len(mount) < 5 || len(super) < 3 || super[0] != "cgroup2" {
			continue
		}
		switch {
		case mount[2] == device:
			return super[2], true
		case mount[4] == path:
			options, ok = super[2], true
		}
	}
	return options, ok
}
