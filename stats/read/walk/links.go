package walk

import (
	"golang.org/x/sys/unix"
)

// linkShares adds up shares of files with several names: each of n names counts as 1/n of the file,
// so that all names together count the file once. The fields are fractions of a byte and an inode,
// in units of 1/linkUnit.
type linkShares struct{ bytes, inodes uint64 }

const linkUnit = 1 << 32

// add counts one name. It returns the bytes and inodes that the shares have completed.
func (s *linkShares) add(st *unix.Stat_t) Usage {
	all, names := Allocated(st), uint64(st.Nlink)
	share := (linkUnit + names - 1) / names // rounded up: all names together are at least one
	s.bytes += all.Bytes % names * share
	s.inodes += share
	u := Usage{Bytes: all.Bytes/names + s.bytes/linkUnit, Inodes: s.inodes / linkUnit}
	s.bytes, s.inodes = s.bytes%linkUnit, s.inodes%linkUnit
	return u
}
