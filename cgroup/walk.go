package cgroup

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// walkDepth is the depth of a walk below a group: a pod's children are its containers, and a
// container may have created groups below its own. The kernel has no limit unless cgroup.max.depth
// is set.
const walkDepth = 32

// Walker visits a group and its descendants. It reuses its buffers, about 20 KiB, so that a
// walk allocates nothing. Use it from one goroutine at a time; the zero value is ready.
type Walker struct {
	levels [walkDepth]level
	child  []byte // of Child
	err    error  // of Err
}

// Err returns the first error of the last walk, which then skipped groups. A group that was removed
// is no error.
func (w *Walker) Err() error { return w.err }

// Child returns the name of the top's child that the visited group is, or is below of; "" for the
// top. It is valid until visit returns.
func (w *Walker) Child() []byte { return w.child }

var itself = []byte(".") // allocated once

// level is one directory on the path from the top to the current group.
type level struct {
	group Group     // its descriptor can be used for listing
	rest  []byte    // the part of buf with entries that are not visited yet
	buf   [512]byte // at least one entry: 19 bytes and a name of up to 255
}

// Walk calls visit for g and every descendant, parents first. The Group belongs to the walk and is
// valid until visit returns; its errors contain the path of g. A group that vanishes meanwhile is
// skipped, and so is one that cannot be opened (Err). A group created meanwhile may be skipped: a
// caller that needs all groups walks again. deep reports that groups more than 32 levels down were
// skipped. visit ends the walk by returning false.
func (w *Walker) Walk(g *Group, visit func(*Group) bool) (deep bool) {
	depth := -1
	w.err = nil
	defer func() {
		for ; depth >= 0; depth-- {
			w.levels[depth].group.Close()
		}
	}()
	enter := func(dir int, name []byte) bool {
		if depth+1 == walkDepth {
			deep = true
			return true
		}
		l := &w.levels[depth+1]
		fd, errno := openDirectory(dir, name)
		if errno != 0 {
			w.fail(g, errno)
			return true
		}
		switch depth++; depth {
		case 0:
			w.child = nil
		case 1:
			w.child = name
		}
		l.group, l.rest = Group{path: g.path, dir: fd}, nil
		return visit(&l.group)
	}
	if !enter(g.dir, itself) {
		return deep
	}
	for depth >= 0 {
		l := &w.levels[depth]
		if len(l.rest) == 0 {
			n, err := entries(l.group.dir, l.buf[:])
			if err != nil {
				w.fail(g, err)
			}
			if err != nil || n == 0 {
				l.group.Close()
				depth--
				continue
			}
			l.rest = l.buf[:n]
		}
		var name []byte
		var directory bool
		if name, directory, l.rest = nextEntry(l.rest); directory && !enter(l.group.dir, name) {
			return deep
		}
	}
	return deep
}

// fail records an error of the walk, unless the group was removed.
func (w *Walker) fail(top *Group, err error) {
	switch err {
	case unix.ENOENT, unix.ENODEV, unix.ENOTDIR, unix.ELOOP: // removed, or no group
		return
	}
	if w.err == nil {
		w.err = fmt.Errorf("list the groups of cgroup /%s: %w", top.path, err)
	}
}

// openDirectory opens a directory for listing.
func openDirectory(dir int, name []byte) (int, unix.Errno) {
	var text [256]byte
	if len(name) >= len(text) {
		return -1, unix.ENAMETOOLONG
	}
	copy(text[:], name)
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&text[0])),
			unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0, 0, 0)
		if errno != unix.EINTR {
			return int(fd), errno
		}
	}
}

// nextEntry splits one record of getdents64(2) off b; see directories.
func nextEntry(b []byte) (name []byte, directory bool, rest []byte) {
	directories(b[:min(entryLength(b), len(b))], func(n []byte) { name, directory = n, true })
	return name, directory, b[min(entryLength(b), len(b)):]
}

// entryLength returns the length of the first record, or of the rest of b if that length is
// invalid.
func entryLength(b []byte) int {
	if len(b) < 19 {
		return len(b)
	}
	if n := int(b[16]) | int(b[17])<<8; n >= 19 {
		return n
	}
	return len(b)
}
