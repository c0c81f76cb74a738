// Package kubeletdetect finds out whether a kubelet runs on this node. Beside one the agent leaves
// to it what is the kubelet's: garbage collection, disks, admission (docs/start/configure.md).
//
//	kubeletdetect.go  Finder: the processes that are a kubelet
//	process.go FindProcess: how the kubelet was started
//	owner.go   which processes are the node's own
//	presence.go Presence: one that was seen a moment ago counts, over restarts
//	listen.go  who listens on a kubelet's ports
//	diag.go    what listens on a port, by the kernel's socket diagnosis
//	watch.go   Watch: what is known of it, for a loop that must not wait
package kubeletdetect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// names are programs that are a kubelet, or have one inside: microk8s (kubelite), k3s and rke2
// (which rename themselves by what they do), k0s, MicroShift, KubeEdge (edgecore), and the
// hyperkube of old.
var names = []string{
	"kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "rke2", "rke2-server", "rke2-agent",
	"k0s", "microshift", "edgecore", "hyperkube",
}

const maxPath = 4096 // of a program's path

// Finder looks for a kubelet, again and again, and begins with the process that it has found: as
// long as that is a kubelet, no other is asked. Zero is one that has found none. It is safe for
// concurrent use.
type Finder struct{ pid atomic.Int64 }

// Kubelet says whether a kubelet runs on the node whose /proc is mounted at procMount (empty:
// /proc), and by what: "process 812 is a kubelet". Doubt counts as one: what cannot be read may be
// one.
//
// Counted is what runs as the node's root under a kubelet's name (/proc/PID/comm, or the file of
// its program, /proc/PID/exe), and what listens on a kubelet's ports in the node's network. What a
// pod or another user runs is not: they could stop garbage collection by a name. A kubelet inside a
// pod (vcluster, a node in a pod) is another node's; a container that is no pod (RKE, Talos, kind's
// nodes as seen from their host) lies outside kubepods and counts.
//
// It reads a short file and a link of each process each time, since any process may become a
// kubelet by exec. That a process is none is not remembered.
func (f *Finder) Kubelet(procMount string) (beside bool, why string) {
	procMount = orProc(procMount)
	p, err := openProc(procMount)
	if err != nil {
		return true, doubt(err)
	}
	defer p.close()
	if known := int(f.pid.Load()); known > 0 && p.foreign() == nil {
		if why, _, err := p.is(known); err == nil && why != "" {
			return true, why
		}
	}
	if err := p.list(); err != nil {
		return true, doubt(fmt.Errorf("list %s: %w", procMount, err))
	}
	if err = p.foreign(); err == nil {
		var pid int
		pid, why, err = p.process()
		f.pid.Store(int64(pid))
	}
	if err == nil && why == "" {
		why, err = p.listener()
	}
	if err != nil {
		return true, doubt(err)
	}
	return why != "", why
}

// orProc is where /proc is mounted.
func orProc(procMount string) string { return cmp.Or(procMount, "/proc") }

func doubt(err error) string { return "a kubelet may run, it cannot be seen: " + err.Error() }

// proc is a mounted /proc and the processes that were in it.
type proc struct {
	mount string
	fd    int
	pids  []int
	buf   []byte
}

func openProc(mount string) (*proc, error) {
	fd, err := unix.Open(mount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", mount, err)
	}
	return &proc{mount: mount, fd: fd, buf: make([]byte, 32<<10)}, nil
}

func (p *proc) close() { unix.Close(p.fd) }

// list reads which processes there are, anew each time.
func (p *proc) list() error {
	if _, err := unix.Seek(p.fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	p.pids = p.pids[:0]
	var found []string
	for {
		n, err := unix.Getdents(p.fd, p.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			break
		}
		_, _, found = unix.ParseDirent(p.buf[:n], -1, found[:0])
		for _, name := range found {
			if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
				p.pids = append(p.pids, pid)
			}
		}
	}
	if !slices.Contains(p.pids, 1) {
		return errors.New("process 1 is not there")
	}
	return nil
}

// read reads the beginning of a file, as far as it fits into buf: these files come in one piece.
// gone: the process has ended.
func (p *proc) read(path string, buf []byte) (b []byte, gone bool, err error) {
	fd, err := unix.Openat(p.fd, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		n := 0
		for again := true; again; again = err == unix.EINTR {
			n, err = unix.Read(fd, buf)
		}
		b = buf[:max(n, 0)]
	}
	if err == unix.ENOENT || err == unix.ESRCH {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s/%s: %w", p.mount, path, err)
	}
	return b, false, nil
}

// foreign is the doubt in a /proc that is not the node's, where a kubelet cannot be seen: process 1
// is this program, or a pod's.
func (p *proc) foreign() error {
	var self [16]byte
	if n, err := unix.Readlinkat(p.fd, "self", self[:]); err == nil && string(self[:n]) == "1" {
		return fmt.Errorf("process 1 in %s is this program: it is not the node's /proc", p.mount)
	}
	pod, gone, err := p.ofPod("1")
	if gone { // it is there always
		err = errNoMemory("1")
	}
	if err == nil && pod {
		err = fmt.Errorf("process 1 in %s is a pod's: it is not the node's /proc", p.mount)
	}
	return err
}

// errNoMemory: a process is there, and its files are not.
func errNoMemory(dir string) error {
	return fmt.Errorf("process %s is there, and its files are not: the kernel may have no memory for them", dir)
}

// looks is how often a process is looked at that is there by the list of all, and gone by its own
// files.
const looks = 3

// each looks at each process until one is a kubelet. The kernel calls a file of a process absent,
// too, where it has no memory for its inode (v6.12 fs/proc/base.c proc_pid_instantiate,
// proc_pident_instantiate), but lists the process all the same (proc_fill_cache there): one that
// seems gone has to be missing from a list that is made after it, or it is looked at again, and in
// the end a doubt.
func (p *proc) each(look func(pid int) (why string, gone bool, err error)) (pid int, why string,
	err error) {
	left := p.pids
	for range looks {
		var gone []int
		for _, pid := range left {
			why, is, err := look(pid)
			if err != nil || why != "" {
				return pid, why, err
			}
			if is {
				gone = append(gone, pid)
			}
		}
		if len(gone) == 0 {
			return 0, "", nil
		}
		if err := p.list(); err != nil {
			return 0, "", fmt.Errorf("list %s: %w", p.mount, err)
		}
		left = slices.DeleteFunc(gone, func(pid int) bool { return !slices.Contains(p.pids, pid) })
	}
	if len(left) > 0 {
		return 0, "", errNoMemory(strconv.Itoa(left[0]))
	}
	return 0, "", nil
}

// process looks for a process that is called as a kubelet is.
func (p *proc) process() (pid int, why string, err error) { return p.each(p.is) }

// is says by what a process is a kubelet; empty: it is none, or it is gone.
func (p *proc) is(pid int) (why string, gone bool, err error) {
	dir := strconv.Itoa(pid)
	name, gone, err := p.kubelet(dir)
	if err != nil || gone || name == "" {
		return "", gone, err
	}
	own, gone, err := p.nodesOwn(dir)
	if err != nil || gone || !own {
		return "", gone, err
	}
	return fmt.Sprintf("process %d is a %s", pid, name), false, nil
}

// kubelet is the kubelet's name that a process goes by; empty: none.
func (p *proc) kubelet(dir string) (name string, gone bool, err error) {
	b, gone, err := p.read(dir+"/comm", p.buf[:64])
	if name = kubeletName(bytes.TrimSuffix(b, []byte("\n"))); name != "" || gone || err != nil {
		return name, gone, err
	}
	n, err := unix.Readlinkat(p.fd, dir+"/exe", p.buf[:maxPath])
	switch err {
	case nil:
		return kubeletName(base(bytes.TrimSuffix(p.buf[:n], []byte(" (deleted)")))), false, nil
	// a thread of the kernel, or gone; what is called a kubelet by this link alone is looked for again
	// soon
	case unix.ENOENT, unix.ESRCH:
		return "", false, nil
	// a path of more than PATH_MAX is nobody's but a tenant's, who wants to be asked for more
	case unix.ENAMETOOLONG:
		return "", false, nil
	}
	name, err = p.argv(dir)
	return name, false, err
}

// argv is the kubelet's name in argv[0]. It tells as much as the link, but reading it waits for the
// process's memory map (v6.12 mm/memory.c __access_remote_vm), which a process that thrashes may
// hold for ever, and one that wants to. So it is asked only where the link is refused, and only of
// the node's own processes.
func (p *proc) argv(dir string) (name string, err error) {
	if own, gone, err := p.nodesOwn(dir); err != nil || gone || !own {
		return "", err
	}
	b, _, err := p.read(dir+"/cmdline", p.buf[:maxPath])
	b, _, _ = bytes.Cut(b, []byte{0})
	// A program that writes its title over its arguments parts them by blanks: "/usr/local/bin/k3s
	// server".
	b, _, _ = bytes.Cut(b, []byte(" "))
	return kubeletName(base(b)), err
}

func base(path []byte) []byte { return path[bytes.LastIndexByte(path, '/')+1:] }

func kubeletName(b []byte) string {
	// NixOS: .kubelet-wrapped
	b = bytes.TrimSuffix(bytes.TrimPrefix(b, []byte(".")), []byte("-wrapped"))
	for _, name := range names {
		if string(b) == name {
			return name
		}
	}
	return ""
}
