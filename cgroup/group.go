package cgroup

import "golang.org/x/sys/unix"

// ID distinguishes a cgroup from a later one with the same path. Paths are reused. Inode numbers of
// kernfs are not reused while the mount exists, because they contain a generation (v6.12
// fs/kernfs/dir.c kernfs_id).
type ID struct{ Dev, Ino uint64 }

// Group is a handle of one cgroup: the descriptor of its directory. Reads and kills affect that
// cgroup or return ErrVanished, and never reach a later cgroup with the same name. Use a Group from
// one goroutine at a time, and close it.
type Group struct {
	path string // below the root when it was opened, without a leading slash; "" is the root
	id   ID
	dir  int
	kept [len(keptFiles)]int // descriptor + 1 of each kept file; 0: not opened yet
	kill int                 // descriptor + 1 of cgroup.kill, by OpenKept; 0: not open
}

// ID returns the group's identity.
func (g *Group) ID() ID { return g.id }

// Close closes all descriptors.
func (g *Group) Close() {
	for i, fd := range g.kept {
		if fd != 0 {
			unix.Close(fd - 1)
			g.kept[i] = 0
		}
	}
	if g.kill != 0 {
		unix.Close(g.kill - 1)
		g.kill = 0
	}
	if g.dir >= 0 {
		unix.Close(g.dir)
		g.dir = -1
	}
}

// OpenKept opens the files that memory and task looks read, and cgroup.kill, so that neither the
// looks nor DupKill need name lookups. If a file cannot be opened, the next read of it tries again.
func (g *Group) OpenKept() {
	for _, which := range []int{
		fileMemoryCurrent, fileMemoryStat, fileMemoryEvents, fileMemoryMax, fileMemoryPressure,
		filePIDsCurrent, fileCgroupEvents,
	} {
		if g.kept[which] != 0 {
			continue
		}
		if fd, err := g.openFile(keptFiles[which], unix.O_RDONLY); err == nil {
			g.kept[which] = fd + 1
		}
	}
	if g.kill == 0 {
		if fd, err := g.OpenKill(); err == nil {
			g.kill = fd + 1
		}
	}
}

// DupKill returns a duplicate descriptor of cgroup.kill for WriteKill, for another Group of the
// same cgroup; -1: OpenKept could not open it. It allocates nothing. The caller closes it.
func (g *Group) DupKill() (fd int) {
	if g.kill == 0 {
		return -1
	}
	fd, err := unix.FcntlInt(uintptr(g.kill-1), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}
