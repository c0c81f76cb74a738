package socket

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// role is the permission of a peer.
type role int

const (
	stranger role = iota
	member        // of socketGroup: read, and put or delete pods
	owner         // root, or the user that the agent runs as: everything
)

// peer is the process that connected, as the kernel recorded it at connect.
type peer struct {
	uid, gid uint32
	groups   []uint32 // supplementary ones
}

// peerOf returns the credentials of the other end from the kernel (SO_PEERCRED, SO_PEERGROUPS in
// socket(7), unix(7)).
func peerOf(conn *net.UnixConn) (p peer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); inner != nil {
			return
		}
		p.uid, p.gid = cred.Uid, cred.Gid
		p.groups, inner = peerGroups(fd)
	})
	return p, errors.Join(err, inner)
}

// maxGroups is NGROUPS_MAX of include/uapi/linux/limits.h.
const maxGroups = 65536

// peerGroups returns the supplementary groups of the other end (SO_PEERGROUPS, Linux 4.13). With
// ERANGE the kernel reports that more exist than fit, and their size in bytes.
func peerGroups(fd uintptr) ([]uint32, error) {
	groups := make([]uint32, 32)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:min(int(size/4), len(groups))], nil
		case errno == unix.ERANGE && int(size/4) > len(groups) && size/4 <= maxGroups:
			groups = make([]uint32, size/4)
		default:
			return nil, fmt.Errorf("getsockopt SO_PEERGROUPS: %w", errno)
		}
	}
}

// role returns the role of the peer. gid is that of socketGroup; -1: none.
func (p peer) role(gid int) role {
	switch {
	case p.uid == 0 || int(p.uid) == os.Geteuid():
		return owner
	case gid >= 0 && (int(p.gid) == gid || slices.Contains(p.groups, uint32(gid))):
		return member
	}
	return stranger
}

// groupID returns the number of a group given by name or number; -1: no group is given.
func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	text := name
	if g, err := user.LookupGroup(name); err == nil {
		text = g.Gid
	}
	gid, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("socketGroup %q: group not found (in a container: in its /etc/group): "+
			"use an existing group, or its number", name)
	}
	if gid == overflowGID() {
		return 0, fmt.Errorf("socketGroup %q: the kernel shows every process of another user namespace "+
			"as group %d: choose another group",
			name, gid)
	}
	return int(gid), nil
}

// overflowGID returns the group that stands for all groups outside the agent's user namespace
// (Documentation/admin-guide/sysctl/fs.rst).
func overflowGID() uint64 {
	if text, err := os.ReadFile("/proc/sys/kernel/overflowgid"); err == nil {
		if gid, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 32); err == nil {
			return gid
		}
	}
	return 65534
}
