package kubeletdetect

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Constants of v6.12 include/uapi/linux/inet_diag.h and net/tcp_states.h that x/sys/unix lacks.
const (
	sockDiagByFamily = 20      // include/uapi/linux/sock_diag.h
	tcpListen        = 1 << 10 // TCPF_LISTEN
	diagRequestSize  = 56      // struct inet_diag_req_v2
	diagMessageSize  = 72      // struct inet_diag_msg
	// offset of idiag_sport, in network byte order; in the request it is at diagRequestPort
	diagPort        = 4
	diagRequestPort = 8
	diagUID         = 64
	diagInode       = 68
	// seconds; the kernel computes an answer while it is read, so there is nothing to wait for
	diagTimeout = 1
)

var errDiag = errors.New("malformed answer of the kernel's socket diagnosis")

// diagnose asks the kernel for the listeners on a kubelet's ports, by family and port. The kernel
// walks its listeners once for each, and reports no others. It fails if the kernel lacks
// CONFIG_INET_DIAG, or the network of process 1 cannot be entered.
func (p *proc) diagnose(all sockets) error {
	first, err := unix.Openat(p.fd, "1/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(first)
	at := netns.None() // this program's network
	var theirs, own unix.Stat_t
	if unix.Fstat(first, &theirs) != nil || unix.Stat("/proc/self/ns/net", &own) != nil ||
		theirs.Dev != own.Dev || theirs.Ino != own.Ino {
		at = netns.NsHandle(first)
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		for _, port := range ports {
			if err := p.dump(at, family, port, all); err != nil {
				return fmt.Errorf("find listeners on port %d: %w", port, err)
			}
		}
	}
	return nil
}

// dump requests the listeners of one port. A socket whose answer was not read to the end accepts no
// other request, so each request has its own socket.
func (p *proc) dump(at netns.NsHandle, family byte, port uint16, all sockets) error {
	s, err := nl.GetNetlinkSocketAt(at, netns.None(), unix.NETLINK_INET_DIAG)
	if err != nil {
		return err
	}
	defer s.Close()
	fd := s.GetFd()
	if err := unix.SetNonblock(fd, false); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: diagTimeout}); err != nil {
		return err
	}
	var b [unix.SizeofNlMsghdr + diagRequestSize]byte
	binary.NativeEndian.PutUint32(b[:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request := b[unix.SizeofNlMsghdr:]
	request[0], request[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(request[4:], tcpListen)
	binary.BigEndian.PutUint16(request[diagRequestPort:], port)
	if err := unix.Sendto(fd, b[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for left := maxListening; left > 0; {
		n, _, err := unix.Recvfrom(fd, p.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		took, done, err := parseDiag(p.buf[:n], all.add)
		if err != nil || done {
			return err
		}
		left -= max(took, 1)
	}
	return nil
}

// parseDiag parses one read of an answer, and calls take for each socket. took is the number of
// sockets; done: the answer is complete.
func parseDiag(b []byte, take func(socket)) (took int, done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		size, kind := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint16(b[4:])
		if size < unix.SizeofNlMsghdr || uint64(size) > uint64(len(b)) {
			return took, false, errDiag
		}
		m := b[unix.SizeofNlMsghdr:size]
		b = b[min(len(b), (int(size)+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
		switch {
		case kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR: // a dump ends with its status
			if len(m) < 4 {
				return took, false, errDiag
			}
			if code := int32(binary.NativeEndian.Uint32(m)); code < 0 {
				return took, false, unix.Errno(-code)
			}
			return took, true, nil
		case kind != sockDiagByFamily || len(m) < diagMessageSize:
			return took, false, errDiag
		}
		took++
		take(socket{
			port: binary.BigEndian.Uint16(m[diagPort:]), root: binary.NativeEndian.Uint32(m[diagUID:]) == 0,
			inode: uint64(binary.NativeEndian.Uint32(m[diagInode:])),
		})
	}
	return took, false, nil
}
