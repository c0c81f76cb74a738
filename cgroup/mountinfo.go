package cgroup

import (
	"io"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"jettison/seqfile"
)

// mountOptions finds the options of a cgroup v2 superblock in a mountinfo file
// (proc_pid_mountinfo(5)):
//
//	36 35 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2
//	   rw,nsdelegate,memory_recursiveprot
//
// It uses any mount of that device, because all mounts of one superblock share the options. Without
// such a mount it uses the last mount at that path, which covers earlier ones.
func mountOptions(from io.Reader, path string, device uint64) (options string, ok bool, err error) {
	exact := false
	_, err = mountinfo.GetMountsFromReader(seqfile.Mounts(from), func(m *mountinfo.Info) (skip,
		stop bool) {
		switch {
		case m.FSType != "cgroup2" || exact:
		case uint32(m.Major) == unix.Major(device) && uint32(m.Minor) == unix.Minor(device):
			options, ok, exact = m.VFSOptions, true, true
		case m.Mountpoint == path:
			options, ok = m.VFSOptions, true
		}
		return true, false
	})
	return options, ok, err
}
