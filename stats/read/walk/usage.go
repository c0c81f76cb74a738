package walk

import (
	"golang.org/x/sys/unix"
)

// Usage is what a directory tree takes: allocated bytes (st_blocks), and inodes, the directories'
// own included, as cAdvisor counts them (fs/fs.go GetDirUsage). partial: a part was not reached, it
// is a lower bound.
type Usage struct {
	Bytes, Inodes uint64
	Partial       bool
}

// Add adds what another part takes.
func (u *Usage) Add(o Usage) {
	u.Bytes, u.Inodes, u.Partial = u.Bytes+o.Bytes, u.Inodes+o.Inodes, u.Partial || o.Partial
}

// Allocated is what one inode takes.
func Allocated(st *unix.Stat_t) Usage { return Usage{Bytes: uint64(st.Blocks) * 512, Inodes: 1} }
