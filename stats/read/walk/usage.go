package walk

import (
	"golang.org/x/sys/unix"
)

// Usage is the disk usage of a directory tree: allocated bytes (st_blocks), and inodes, including
// those of directories, as cAdvisor counts them (fs/fs.go GetDirUsage). Partial: a part was not
// reached, so the usage is a lower bound.
type Usage struct {
	Bytes, Inodes uint64
	Partial       bool
}

// Add adds the usage of another part.
func (u *Usage) Add(o Usage) {
	u.Bytes, u.Inodes, u.Partial = u.Bytes+o.Bytes, u.Inodes+o.Inodes, u.Partial || o.Partial
}

// Allocated returns the usage of one inode.
func Allocated(st *unix.Stat_t) Usage { return Usage{Bytes: uint64(st.Blocks) * 512, Inodes: 1} }
