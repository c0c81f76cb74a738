package cgroup

import "golang.org/x/sys/unix"

// ID tells one cgroup from another that later gets the same path: paths are used again, inode numbers of kernfs are not
// while the mount lives (they carry a generation, v6.12 fs/kernfs/dir.c kernfs_id).
type ID struct{ Dev, Ino uint64 }

// Group is one cgroup, held by the descriptor of its directory: what is read or killed through it is that very cgroup, or
// ErrVanished, never a successor of the same name. Close it. A Group is used by one goroutine at a time.
type Group struct {
	path string // below the root when it was opened, without a leading slash; "" is the root
	id   ID
	dir  int
	kept [len(keptFiles)]int // descriptor + 1 of each kept file; 0: not opened yet
}

// ID is the group's identity.
func (g *Group) ID() ID { return g.id }

// Close gives all descriptors back.
func (g *Group) Close() {
	for i, fd := range g.kept {
		if fd != 0 {
			unix.Close(fd - 1)
			g.kept[i] = 0
		}
	}
	if g.dir >= 0 {
		unix.Close(g.dir)
		g.dir = -1
	}
}
