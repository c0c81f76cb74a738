package kubeletdetect

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ports are a kubelet's: its API, its health endpoint, and its read-only API (kubelet
// pkg/cluster/ports/ports.go).
var ports = []uint16{10250, 10248, 10255}

// A tenant of the node's network may open any number of listeners, and a user may listen on any of
// these ports. The search ignores everything beyond these limits, and does not count it as a
// possible kubelet: otherwise a tenant could cause that. A kubelet has one or two sockets per port,
// and some hundred descriptors.
const (
	maxListening   = 20_000 // sockets of a table, or of a port
	maxSockets     = 4096   // of root on a kubelet's ports
	maxDescriptors = 65_536 // of a process
)

// socket is a listening socket.
type socket struct {
	port  uint16
	root  bool // created by user 0 of the initial user namespace, or of this program's
	inode uint64
}

// sockets are root's listeners on a kubelet's ports, by the text of a descriptor's link.
type sockets map[string]uint16

func (all sockets) add(s socket) {
	if s.root && slices.Contains(ports, s.port) && len(all) < maxSockets {
		all["socket:["+strconv.FormatUint(s.inode, 10)+"]"] = s.port
	}
}

// searchListeners searches the node's own processes for one that holds a listener on a kubelet's port in
// the network of process 1. A listener without such a process is no kubelet's: a pod in the node's
// network can use any port, a user any of these, and a socket in flight between processes is in a
// queue without a holder (unix(7), SCM_RIGHTS). Descriptors of other processes are not read.
func (p *proc) searchListeners() (why string, err error) {
	all, err := p.listening()
	if err != nil || len(all) == 0 {
		return "", err
	}
	if err := p.list(); err != nil { // the listener's process may have started since
		return "", fmt.Errorf("list %s: %w", p.mount, err)
	}
	_, why, err = p.each(func(pid int) (why string, gone bool, err error) {
		dir := strconv.Itoa(pid)
		own, gone, err := p.nodesOwn(dir)
		if err != nil || gone || !own {
			return "", gone, err
		}
		port, gone, err := p.holds(dir+"/fd", all)
		if err != nil || port == 0 {
			return "", gone, err
		}
		return fmt.Sprintf("a process of root listens on port %d", port), false, nil
	})
	return why, err
}

// listening finds the listeners on a kubelet's ports. It asks the kernel for these ports; if that
// fails, it reads the tables of all sockets.
func (p *proc) listening() (all sockets, err error) {
	all = sockets{}
	if p.diagnose(all) == nil {
		return all, nil
	}
	clear(all)
	for _, file := range []string{"1/net/tcp", "1/net/tcp6"} {
		if err := p.table(file, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// tableChunk is a page, the most that one read returns (v6.12 fs/seq_file.c seq_read_iter). Each
// read makes the kernel walk its current bucket again, so smaller reads of thousands of listeners
// in one bucket would take seconds.
const tableChunk = 4096

// table reads a kubelet's ports from a table of sockets. The kernel lists listeners first (v6.12
// net/ipv4/tcp_ipv4.c tcp_get_idx), so table reads only the beginning, regardless of the number of
// connections.
func (p *proc) table(file string, all sockets) error {
	fd, err := unix.Openat(p.fd, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && strings.HasSuffix(file, "6") { // a kernel without IPv6
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s/%s: %w", p.mount, file, err)
	}
	defer unix.Close(fd)
	kept, lines := 0, 0
	for {
		n, err := unix.Read(fd, p.buf[kept:min(len(p.buf), kept+tableChunk)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("read %s/%s: %w", p.mount, file, err)
		}
		b := p.buf[:kept+n]
		for {
			line, rest, ok := bytes.Cut(b, []byte("\n"))
			if !ok {
				break
			}
			b = rest
			if lines++; lines == 1 { // the header
				continue
			}
			s, listens, err := parseSocket(line)
			if err != nil {
				return fmt.Errorf("%s/%s: %w", p.mount, file, err)
			}
			if !listens || lines > maxListening {
				return nil
			}
			all.add(s)
		}
		if n == 0 {
			return nil
		}
		if kept = copy(p.buf, b); kept == len(p.buf) {
			return fmt.Errorf("%s/%s: line longer than %d bytes", p.mount, file, kept)
		}
	}
}

var errSocket = errors.New(`malformed line, want "N: ADDRESS:PORT ADDRESS:PORT STATE ... INODE"`)

// parseSocket parses a line of /proc/net/tcp: "0: 0100007F:2808 00000000:0000 0A 00000000:00000000
// 00:00000000 00000000 0 0 12345 ...".
func parseSocket(line []byte) (s socket, listens bool, err error) {
	const local, state, uid, inode, listen = 1, 3, 7, 9, "0A"
	f := bytes.Fields(line)
	if len(f) <= inode {
		return s, false, errSocket
	}
	if string(f[state]) != listen {
		return s, false, nil
	}
	port, err := strconv.ParseUint(string(f[local][bytes.LastIndexByte(f[local], ':')+1:]), 16, 16)
	if err != nil {
		return s, false, errSocket
	}
	// The user id is in the reader's user namespace (v6.12 net/ipv4/tcp_ipv4.c get_tcp4_sock,
	// from_kuid_munged of seq_user_ns).
	if _, err := strconv.ParseUint(string(f[uid]), 10, 32); err != nil {
		return s, false, errSocket
	}
	ino, err := strconv.ParseUint(string(f[inode]), 10, 64)
	if err != nil {
		return s, false, errSocket
	}
	return socket{uint16(port), string(f[uid]) == "0", ino}, true, nil
}

// holds returns the port of the first of the sockets among the descriptors in a directory; 0: it
// has none of them. gone: the directory does not exist any more.
func (p *proc) holds(dir string, all sockets) (port uint16, gone bool, err error) {
	fd, err := unix.Openat(p.fd, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ESRCH {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("open %s/%s: %w", p.mount, dir, err)
	}
	defer unix.Close(fd)
	var found []string
	var target [64]byte
	for left := maxDescriptors; left > 0; left -= len(found) {
		n, err := unix.Getdents(fd, p.buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil { // the process ended
			return 0, false, nil
		}
		_, _, found = unix.ParseDirent(p.buf[:n], -1, found[:0])
		for _, name := range found {
			if n, err := unix.Readlinkat(fd, name, target[:]); err == nil {
				if port, ok := all[string(target[:n])]; ok {
					return port, false, nil
				}
			}
		}
	}
	return 0, false, nil
}
