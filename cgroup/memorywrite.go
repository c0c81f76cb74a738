package cgroup

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// SetMemoryMin writes memory.min: the bytes of the group and its descendants that are not reclaimed
// under any pressure, up to the ancestors' memory.min. Unlike a write to memory.max or memory.high,
// this write reclaims no memory.
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

// OOMGroup reads memory.oom.group. If it is set, an OOM kill of a process of the group, or of a
// descendant, kills all its processes except those with oom_score_adj -1000 (since v4.19; v6.12
// mm/memcontrol.c, mem_cgroup_get_oom_group).
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

// notePrefix is the prefix of notes that the owner of a group's directory may set. cgroup v2 has
// user extended attributes since v5.7 (kernel/cgroup/cgroup.c, KERNFS_ROOT_SUPPORT_USER_XATTR), up
// to 128 per group.
const notePrefix = "user.jettison."

// Trusted is the prefix of the names of protected notes. To set, read or remove such a note, a
// process needs CAP_SYS_ADMIN in the node's user namespace. A container that owns its cgroup's
// directory does not have it. cgroup v2 has these attributes (trusted.*) on every kernel (v5.10,
// v6.12 fs/kernfs/inode.c kernfs_trusted_xattr_handler, fs/xattr.c xattr_permission).
const Trusted = "trusted."

// attribute returns the name of a note's extended attribute.
func attribute(name string) string {
	if rest, ok := strings.CutPrefix(name, Trusted); ok {
		return Trusted + "jettison." + rest
	}
	return notePrefix + name
}

// Note reads a short text that was set on the group under a name. A note exists as long as the
// group. ok is false if the note is absent.
func (g *Group) Note(name string) (text string, ok bool, err error) {
	err = g.withDirectory(func(fd int) error {
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

// SetNote sets a note of up to 128 bytes. EOPNOTSUPP: the kernel does not support notes. EPERM:
// this process may not set the note.
func (g *Group) SetNote(name, text string) error {
	return g.withDirectory(func(fd int) error { return unix.Fsetxattr(fd, attribute(name), []byte(text), 0) })
}

// RemoveNote removes a note; a missing note is no error.
func (g *Group) RemoveNote(name string) error {
	err := g.withDirectory(func(fd int) error { return unix.Fremovexattr(fd, attribute(name)) })
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

// Notes returns the names of the group's notes, including Trusted ones that this process may
// see.
func (g *Group) Notes() (names []string, err error) {
	err = g.withDirectory(func(fd int) error {
		var buf [64 << 10]byte // the kernel's maximum (include/uapi/linux/limits.h XATTR_LIST_MAX)
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
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without notes
		err = nil
	}
	return names, err
}

// withDirectory calls do with a readable descriptor of the group's directory, because the Group's
// own descriptor is O_PATH.
func (g *Group) withDirectory(do func(fd int) error) error {
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
