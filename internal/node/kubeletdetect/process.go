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

// maxCommandLine is more than the command line of a kubelet has.
const maxCommandLine = 1 << 20

// Process is the node's kubelet as it was started.
type Process struct {
	PID  int
	Name string   // what it goes by: "kubelet", or a program that has one inside ("k3s")
	Args []string // without the program itself
	Dir  string   // its working directory, by its own root
	// its root directory as this program sees it; relative symbolic links below it lead out
	Root string
}

// FindProcess finds the process of the node's kubelet. ok: there is one. One that is a kubelet and
// nothing else comes before a program that has one inside: rke2 does not, but starts one, with
// flags of its own. It waits for that process's memory map, which may be held for long while it
// thrashes.
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
	if err := p.foreign(); err != nil {
		return k, false, err
	}
	pid, why, err := p.each(p.alone)
	if err == nil && why == "" {
		pid, why, err = p.process()
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
	// What was read is of that process only if it is there still.
	if again, _, err := p.is(pid); err != nil || again != why || k.Name == "" {
		return k, false, errors.Join(err, fmt.Errorf("process %d ended while its command line was read",
			pid))
	}
	return k, true, nil
}

// alone is as of is, for what goes by the kubelet's own name alone.
func (p *proc) alone(pid int) (why string, gone bool, err error) {
	name, gone, err := p.kubelet(strconv.Itoa(pid))
	if err != nil || gone || name != names[0] {
		return "", gone, err
	}
	return p.is(pid)
}
