package cgroup

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// SetMemoryMin writes memory.min: bytes that are not taken from the group and all below it,
// whatever the pressure; what the groups above it do not have counts for nothing. Unlike a write to
// memory.max or memory.high it reclaims nothing.
func (g *Group) SetMemoryMin(bytes uint64) error {
	fd, err := g.openFile("memory.min", unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err = unix.Write(fd, fmt.Appendf(nil, "%d", bytes)); err == unix.ENODEV {
		err = ErrVanished
	}
	if err != nil {
		return fmt.Errorf("write %d to cgroup %s: %w", bytes, g.file("memory.min"), err)
	}
	return nil
}

// OOMGroup reads memory.oom.group: whether an OOM kill of one of the group's processes, or of one
// below, is one of them all but those with oom_score_adj -1000 (since v4.19; v6.12 mm/memcontrol.c,
// mem_cgroup_get_oom_group).
func (g *Group) OOMGroup(buf []byte) (bool, error) {
	l, err := g.readLimit("memory.oom.group", buf)
	return l.Bytes != 0, err
}

// SetOOMGroup writes memory.oom.group.
func (g *Group) SetOOMGroup(all bool) error {
	if all {
		return g.write("memory.oom.group", "1")
	}
	return g.write("memory.oom.group", "0")
}

// notePrefix: extended attributes of users are there for cgroup v2 since v5.7
// (kernel/cgroup/cgroup.c, KERNFS_ROOT_SUPPORT_USER_XATTR), 128 of them a group.
const notePrefix = "user.jettison."

// Trusted begins the name of a note that takes CAP_SYS_ADMIN in the user namespace of the node to
// leave, read or remove: no container can that owns its cgroup's directory. cgroup v2 takes these
// attributes (trusted.*) on every kernel (v5.10, v6.12 fs/kernfs/inode.c
// kernfs_trusted_xattr_handler, fs/xattr.c xattr_permission).
const Trusted = "trusted."

// attribute is what the kernel calls a note.
func attribute(name string) string {
	if rest, ok := strings.CutPrefix(name, Trusted); ok {
		return Trusted + "jettison." + rest
	}
	return notePrefix + name
}

// Note is a short text that was left on the group under a name. It lives as long as the group.
// Absent: ok is false.
func (g *Group) Note(name string) (text string, ok bool, err error) {
	err = g.noted(func(fd int) error {
		var buf [128]byte
		n, err := unix.Fgetxattr(fd, attribute(name), buf[:])
		if err == nil {
			text, ok = string(buf[:n]), true
		}
		return err
	})
	if errors.Is(err, unix.ENODATA) {
		err = nil
	}
	return text, ok, err
}

// SetNote leaves a text of up to 128 bytes. EOPNOTSUPP: the kernel cannot. EPERM: it is not for
// this process.
func (g *Group) SetNote(name, text string) error {
	return g.noted(func(fd int) error { return unix.Fsetxattr(fd, attribute(name), []byte(text), 0) })
}

// RemoveNote removes it; one that is not there is no error.
func (g *Group) RemoveNote(name string) error {
	err := g.noted(func(fd int) error { return unix.Fremovexattr(fd, attribute(name)) })
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

// Notes are the names under which something was left on the group, Trusted ones that this process
// may see among them.
func (g *Group) Notes() (names []string, err error) {
	err = g.noted(func(fd int) error {
		var buf [64 << 10]byte // the kernel gives no more (include/uapi/linux/limits.h XATTR_LIST_MAX)
		n, err := unix.Flistxattr(fd, buf[:])
		if err != nil {
			return err
		}
		for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
			if own, ok := strings.CutPrefix(name, notePrefix); ok {
				names = append(names, own)
			} else if own, ok := strings.CutPrefix(name, Trusted+"jettison."); ok {
				names = append(names, Trusted+own)
			}
		}
		return nil
	})
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without notes has none
		err = nil
	}
	return names, err
}

// noted does something with the group's directory; its own descriptor is for paths only.
func (g *Group) noted(do func(fd int) error) error {
	fd, err := g.openFile(".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := do(fd); err != nil {
		return fmt.Errorf("extended attribute of cgroup /%s: %w", g.path, err)
	}
	return nil
}
