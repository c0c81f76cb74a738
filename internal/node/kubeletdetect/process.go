package kubeletdetect

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/internal/base/atomicfile"
)

// maxCommandLine bounds the command line of a kubelet, in bytes.
const maxCommandLine = 1 << 20

// Process is the process of the node's kubelet.
type Process struct {
	PID  int
	Name string   // "kubelet", or a program that contains one ("k3s")
	Args []string // without the program itself
	Dir  string   // working directory, below its own root
	// root directory in this process's view; relative symbolic links below it lead outside
	Root string
}

// FindProcess finds the process of the node's kubelet. ok: there is one. A plain kubelet has
// precedence over a program that may contain one: rke2 does not contain a kubelet, but starts one
// with flags. FindProcess waits for the process's memory map, which a thrashing process may lock
// for long.
func FindProcess(procMount string) (k Process, ok bool, err error) {
	procMount = orProc(procMount)
	p, err := openProc(procMount)
	if err != nil {
		return k, false, err
	}
	defer p.close()
	if err := p.list(); err != nil {
		return k, false, fmt.Errorf("list %s: %w", procMount, err)
	}
	if err := p.checkMount(); err != nil {
		return k, false, err
	}
	pid, why, err := p.each(p.plainKubelet)
	if err == nil && why == "" {
		pid, why, err = p.searchNames()
	}
	if err != nil || why == "" {
		return k, false, err
	}
	dir := filepath.Join(procMount, strconv.Itoa(pid))
	k = Process{PID: pid, Root: filepath.Join(dir, "root"), Dir: "/"}
	f, err := atomicfile.Open(filepath.Join(dir, "cmdline"), 0)
	if err != nil {
		return k, false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCommandLine))
	if err != nil {
		return k, false, err
	}
	if k.Name, _, err = p.kubelet(strconv.Itoa(pid)); err != nil {
		return k, false, err
	}
	k.Args = strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")[1:]
	var b [maxPath]byte
	if n, err := unix.Readlinkat(p.fd, strconv.Itoa(pid)+"/cwd", b[:]); err == nil &&
		filepath.IsAbs(string(b[:n])) {
		k.Dir = string(b[:n])
	}
	// The command line belongs to this process only if it still runs.
	if again, _, err := p.evidence(pid); err != nil || again != why || k.Name == "" {
		return k, false, errors.Join(err, fmt.Errorf("read the command line of process %d: the process ended",
			pid))
	}
	return k, true, nil
}

// plainKubelet is like evidence, for processes with the name "kubelet" only.
func (p *proc) plainKubelet(pid int) (why string, gone bool, err error) {
	name, gone, err := p.kubelet(strconv.Itoa(pid))
	if err != nil || gone || name != names[0] {
		return "", gone, err
	}
	return p.evidence(pid)
}
