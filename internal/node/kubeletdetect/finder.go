// Package kubeletdetect detects whether a kubelet runs on this node. With a kubelet, the agent
// leaves garbage collection, disks and admission to it (docs/start/configure.md).
//
//	finder.go    Finder: searches the processes for a kubelet
//	process.go   FindProcess: the kubelet's command line and directories
//	owner.go     distinguishes processes of the node from those of pods and users
//	presence.go  Presence: counts a kubelet as present until it is absent for a while
//	listen.go    listeners on a kubelet's ports
//	diag.go      listeners of a port, by the kernel's socket diagnosis
//	watch.go     Watch: the last result, for a loop that must not wait
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

// names are the programs that are a kubelet or contain one: microk8s (kubelite), k3s and rke2
// (which rename themselves by their role), k0s, MicroShift, KubeEdge (edgecore), and the former
// hyperkube.
var names = []string{
	"kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "rke2", "rke2-server", "rke2-agent",
	"k0s", "microshift", "edgecore", "hyperkube",
}

const maxPath = 4096 // bytes of a program's path

// Finder searches for a kubelet repeatedly. It starts with the process that it found last, and
// checks no other while that is a kubelet. The zero value is ready for use, also concurrently.
type Finder struct{ pid atomic.Int64 }

// Kubelet reports whether a kubelet runs on the node with its /proc mounted at procMount (empty:
// /proc), and the evidence: "process 812 is a kubelet". If something cannot be read, it reports a
// kubelet, because there may be one.
//
// A kubelet is a process of the node's root with a kubelet's name (/proc/PID/comm, or the file of
// its program, /proc/PID/exe), or with a listener on a kubelet's port in the node's network.
// Processes of pods and other users do not count, because they could disable garbage collection
// with a name. A kubelet inside a pod (vcluster, a node in a pod) belongs to another node. A
// container that is no pod (RKE, Talos, kind's nodes as seen from their host) is outside kubepods
// and counts.
//
// Each call reads a short file and a link of every process: any process may become a kubelet by
// exec, so negative results are not cached.
func (f *Finder) Kubelet(procMount string) (found bool, why string) {
	procMount = orProc(procMount)
	p, err := openProc(procMount)
	if err != nil {
		return true, unsure(err)
	}
	defer p.close()
	if known := int(f.pid.Load()); known > 0 && p.checkMount() == nil {
		if why, _, err := p.evidence(known); err == nil && why != "" {
			return true, why
		}
	}
	if err := p.list(); err != nil {
		return true, unsure(fmt.Errorf("list %s: %w", procMount, err))
	}
	if err = p.checkMount(); err == nil {
		var pid int
		pid, why, err = p.searchNames()
		f.pid.Store(int64(pid))
	}
	if err == nil && why == "" {
		why, err = p.searchListeners()
	}
	if err != nil {
		return true, unsure(err)
	}
	return why != "", why
}

// orProc returns procMount, or /proc if it is empty.
func orProc(procMount string) string { return cmp.Or(procMount, "/proc") }

func unsure(err error) string { return "a kubelet may run, the search failed: " + err.Error() }

// proc is a mounted /proc with the list of its processes.
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

// list reads the list of processes again.
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
		return errors.New("process 1 is missing")
	}
	return nil
}

// read reads the beginning of a file into buf. One read returns the whole content of these files.
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

// checkMount returns an error if this /proc is not the node's, so that a kubelet is invisible: process
// 1 is this program, or belongs to a pod.
func (p *proc) checkMount() error {
	var self [16]byte
	if n, err := unix.Readlinkat(p.fd, "self", self[:]); err == nil && string(self[:n]) == "1" {
		return fmt.Errorf("process 1 in %s is this program: mount the node's /proc", p.mount)
	}
	pod, gone, err := p.ofPod("1")
	if gone { // process 1 always exists
		err = errNoMemory("1")
	}
	if err == nil && pod {
		err = fmt.Errorf("process 1 in %s belongs to a pod: mount the node's /proc", p.mount)
	}
	return err
}

// errNoMemory is the error of a process that exists without files.
func errNoMemory(dir string) error {
	return fmt.Errorf("process %s exists, but its files are missing: the kernel may lack memory for them",
		dir)
}

// maxAttempts is the number of attempts for a process that is in the list of all, but has no files.
const maxAttempts = 3

// each calls look for each process until one is a kubelet. If the kernel lacks memory for an inode,
// it reports a process's file as absent (v6.12 fs/proc/base.c proc_pid_instantiate,
// proc_pident_instantiate), but still lists the process (proc_fill_cache there). So a process
// without files counts as gone only if it is missing from a later list. Otherwise each tries again,
// and finally returns an error.
func (p *proc) each(look func(pid int) (why string, gone bool, err error)) (pid int, why string,
	err error) {
	left := p.pids
	for range maxAttempts {
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

// searchNames searches for a process with a kubelet's name.
func (p *proc) searchNames() (pid int, why string, err error) { return p.each(p.evidence) }

// evidence returns the evidence that a process is a kubelet; empty: it is no kubelet, or has ended.
func (p *proc) evidence(pid int) (why string, gone bool, err error) {
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

// kubelet returns the kubelet's name of a process; empty: it has another name.
func (p *proc) kubelet(dir string) (name string, gone bool, err error) {
	b, gone, err := p.read(dir+"/comm", p.buf[:64])
	if name = kubeletName(bytes.TrimSuffix(b, []byte("\n"))); name != "" || gone || err != nil {
		return name, gone, err
	}
	n, err := unix.Readlinkat(p.fd, dir+"/exe", p.buf[:maxPath])
	switch err {
	case nil:
		return kubeletName(base(bytes.TrimSuffix(p.buf[:n], []byte(" (deleted)")))), false, nil
	// a kernel thread, or ended; a kubelet known by this link only is found by the next search
	case unix.ENOENT, unix.ESRCH:
		return "", false, nil
	// only a tenant has a path longer than PATH_MAX, to make this search read more
	case unix.ENAMETOOLONG:
		return "", false, nil
	}
	name, err = p.argv(dir)
	return name, false, err
}

// argv returns the kubelet's name in argv[0]. It has the same information as the link, but reading
// it waits for the process's memory map (v6.12 mm/memory.c __access_remote_vm), which a thrashing
// or hostile process may lock indefinitely. So it is read only if the link is denied, and only of
// the node's own processes.
func (p *proc) argv(dir string) (name string, err error) {
	if own, gone, err := p.nodesOwn(dir); err != nil || gone || !own {
		return "", err
	}
	b, _, err := p.read(dir+"/cmdline", p.buf[:maxPath])
	b, _, _ = bytes.Cut(b, []byte{0})
	// A program that overwrites its arguments with a title separates them by spaces:
	// "/usr/local/bin/k3s server".
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
