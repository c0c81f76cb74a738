package beside

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ports of a kubelet: its API, its health, and the API for reading only (kubelet pkg/cluster/ports/ports.go).
var ports = []uint16{10250, 10248, 10255}

// socket is one that listens.
type socket struct {
	port  uint16
	root  bool // user 0 of the initial user namespace has made it, or of that this program is in
	inode string
}

// listener looks for a socket that listens on a kubelet's port in the node's network: process 1's.
func (p *proc) listener() (why string, err error) {
	for _, file := range []string{"1/net/tcp", "1/net/tcp6"} {
		sockets, err := p.listening(file)
		if err != nil {
			return "", err
		}
		for _, s := range sockets {
			other, err := p.heldByOthers(s)
			if err != nil {
				return "", err
			}
			if !other {
				return fmt.Sprintf("something listens on port %d", s.port), nil
			}
		}
	}
	return "", nil
}

// listenChunk is about a line. The kernel makes as many lines as are asked for, and to find the connections that follow those
// that listen it goes through a table of up to half a million places (2 ms on the build machine), at each call again.
const listenChunk = 160

// listening reads the kubelet's ports out of a table of sockets. The kernel lists those that listen first (v6.12
// net/ipv4/tcp_ipv4.c tcp_get_idx), so only the beginning is read, whatever the number of connections.
func (p *proc) listening(file string) (out []socket, err error) {
	fd, err := unix.Openat(p.fd, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && strings.HasSuffix(file, "6") { // a kernel without IPv6
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s/%s: %w", p.mount, file, err)
	}
	defer unix.Close(fd)
	kept, header := 0, true
	for {
		n, err := unix.Read(fd, p.buf[kept:min(len(p.buf), kept+listenChunk)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s/%s: %w", p.mount, file, err)
		}
		b := p.buf[:kept+n]
		for {
			line, rest, ok := bytes.Cut(b, []byte("\n"))
			if !ok {
				break
			}
			b = rest
			if header {
				header = false
				continue
			}
			s, listens, err := parseSocket(line)
			if err != nil {
				return nil, fmt.Errorf("%s/%s: %w", p.mount, file, err)
			}
			if !listens {
				return out, nil
			}
			for _, port := range ports {
				if s.port == port && s.root {
					out = append(out, s)
				}
			}
		}
		if n == 0 {
			return out, nil
		}
		if kept = copy(p.buf, b); kept == len(p.buf) {
			return nil, fmt.Errorf("%s/%s: a line of more than %d bytes", p.mount, file, kept)
		}
	}
}

var errSocket = errors.New(`malformed line, want "N: ADDRESS:PORT ADDRESS:PORT STATE ... INODE"`)

// parseSocket reads a line of /proc/net/tcp: "0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 12345 ...".
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
	// The user id is of the reader's user namespace (v6.12 net/ipv4/tcp_ipv4.c get_tcp4_sock, from_kuid_munged of seq_user_ns).
	if _, err := strconv.ParseUint(string(f[uid]), 10, 32); err != nil {
		return s, false, errSocket
	}
	return socket{uint16(port), string(f[uid]) == "0", string(f[inode])}, true, nil
}

// heldByOthers says whether those who hold a socket are not the node's own: a pod in the node's network can take any port, and a user any
// of these. One that nobody is seen to hold may be a kubelet's. It is dear, and only done where no kubelet was found and root has a socket
// on one of its ports.
func (p *proc) heldByOthers(s socket) (others bool, err error) {
	link := "socket:[" + s.inode + "]"
	for _, pid := range p.pids {
		dir := strconv.Itoa(pid)
		holds, err := p.holds(dir+"/fd", link)
		if err != nil {
			return false, err
		}
		if !holds {
			continue
		}
		own, gone, err := p.nodesOwn(dir)
		if err != nil || own {
			return false, err
		}
		others = others || !gone
	}
	return others, nil
}

// holds says whether one of the descriptors in a directory is what a link says.
func (p *proc) holds(dir, link string) (bool, error) {
	fd, err := unix.Openat(p.fd, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ESRCH {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s/%s: %w", p.mount, dir, err)
	}
	defer unix.Close(fd)
	var found []string
	var target [64]byte
	for {
		n, err := unix.Getdents(fd, p.buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil { // it ended while it was read
			return false, nil
		}
		_, _, found = unix.ParseDirent(p.buf[:n], -1, found[:0])
		for _, name := range found {
			if n, err := unix.Readlinkat(fd, name, target[:]); err == nil && string(target[:n]) == link {
				return true, nil
			}
		}
	}
}
