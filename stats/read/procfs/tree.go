package procfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// Bounds of TreeMemory: its processes, and the threads of each whose children it reads.
const (
	maxTree    = 256
	maxThreads = 64
)

// TreeMemory returns the resident anonymous memory of a process and its descendants, and the largest
// resident shared memory of one of them: they may share it. It reads RssAnon and RssShmem of
// PID/status. A descendant that ends meanwhile is left out. ESRCH: the process has ended, and another
// one has its PID.
func (p *Proc) TreeMemory(first stats.ProcessID) (anon, shmem uint64, err error) {
	defer func() { // afterwards: then all that was read is that process's
		if start, e := StartTicks(p.mount, first.PID); e == nil && start != first.Start {
			anon, shmem, err = 0, 0, unix.ESRCH
		}
	}()
	tree := []int{first.PID}
	for i := 0; i < len(tree); i++ {
		a, s, err := p.processMemory(tree[i])
		if err != nil && i == 0 {
			return 0, 0, err
		}
		anon, shmem = anon+a, max(shmem, s)
		children, _ := Children(context.Background(), p.mount, tree[i], maxThreads)
		tree = append(tree, children[:min(len(children), maxTree-len(tree))]...)
	}
	return anon, shmem, nil
}

func (p *Proc) processMemory(pid int) (anon, shmem uint64, err error) {
	name := filepath.Join(strconv.Itoa(pid), "status")
	// Its length has no small bound: a process may have 65,536 supplementary groups (setgroups(2)).
	b, err := os.ReadFile(filepath.Join(p.mount, name))
	if err != nil {
		return 0, 0, err
	}
	found := 0
	for line := range bytes.Lines(b) {
		for _, f := range []struct {
			name string
			to   *uint64
		}{{"RssAnon:", &anon}, {"RssShmem:", &shmem}} {
			rest, ok := bytes.CutPrefix(line, []byte(f.name))
			if !ok {
				continue
			}
			if v, ok := cgroup.Decimal(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))); ok {
				*f.to = v << 10
				found++
			}
		}
	}
	if found < 2 { // a zombie has no memory
		return 0, 0, fmt.Errorf("parse %s/%s: %w: no RssAnon or RssShmem", p.mount, name, ErrMalformed)
	}
	return anon, shmem, nil
}

// Children returns the children of a process, of at most so many of its threads (0: all); nil if
// the kernel does not list them (CONFIG_PROC_CHILDREN). After the end of ctx it returns those found
// until then. An error means that some may be missing. The end of a thread or of the process is no
// error.
func Children(ctx context.Context, proc string, pid, threads int) (out []int, err error) {
	tasks := fmt.Sprintf("%s/%d/task", proc, pid)
	note := func(e error) {
		if err == nil && e != io.EOF && !errors.Is(e, os.ErrNotExist) && !errors.Is(e, unix.ESRCH) {
			err = e
		}
	}
	dir, openErr := os.Open(tasks)
	if openErr != nil {
		note(openErr)
		return nil, err
	}
	defer dir.Close()
	names, listErr := dir.Readdirnames(threads)
	note(listErr)
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		b, readErr := os.ReadFile(tasks + "/" + name + "/children")
		note(readErr)
		for _, field := range bytes.Fields(b) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				out = append(out, child)
			}
		}
	}
	return out, err
}
