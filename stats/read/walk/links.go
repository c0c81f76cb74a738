package walk

import (
	"golang.org/x/sys/unix"
)

// linkShares adds up what names of files are of them: a file with n names is counted at each by an
// n-th, so that all of them make one. what is less than a byte or an inode, in 1/linkUnit
type linkShares struct{ bytes, inodes uint64 }

const linkUnit = 1 << 32

// add counts one name, and returns what is whole by now.
func (s *linkShares) add(st *unix.Stat_t) Usage {
	all, names := Allocated(st), uint64(st.Nlink)
	share := (linkUnit + names - 1) / names // all of them are one at least
	s.bytes += all.Bytes % names * share
	s.inodes += share
	u := Usage{Bytes: all.Bytes/names + s.bytes/linkUnit, Inodes: s.inodes / linkUnit}
	s.bytes, s.inodes = s.bytes%linkUnit, s.inodes%linkUnit
	return u
}
