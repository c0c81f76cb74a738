package cgroup

import (
	"bytes"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Procs calls visit with each process ID in the group itself, without descendants: cgroup.procs.
// Processes outside the reader's pid namespace appear as 0 (v6.12 kernel/cgroup/cgroup.c,
// cgroup_procs_show). buf is scratch space. A file longer than buf is read in pieces, so a process
// may be missed if processes start or end meanwhile. EOPNOTSUPP: the group is threaded.
func (g *Group) Procs(buf []byte, visit func(pid int)) error {
	return g.ids("cgroup.procs", buf, visit)
}

// Threads calls visit with each thread ID in the group itself: cgroup.threads. Unlike Procs it also
// works for a threaded group.
func (g *Group) Threads(buf []byte, visit func(tid int)) error {
	return g.ids("cgroup.threads", buf, visit)
}

// ids reads a file that lists process or thread IDs.
func (g *Group) ids(name string, buf []byte, visit func(id int)) error {
	fd, err := g.openFile(name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	kept := 0 // bytes at the start of buf: an incomplete line
	for offset := int64(0); ; {
		// This file is a sequence of records, so a short read is not its end.
		n, err := g.pread(fd, name, buf[kept:], offset)
		if err != nil {
			return err
		}
		offset += int64(n)
		rest, err := parseProcs(buf[:kept+n], n == 0, visit)
		if err == nil && len(rest) == len(buf) {
			err = fmt.Errorf("%w: a line longer than %d bytes", ErrMalformed, len(buf))
		}
		if err != nil {
			return g.parseError(name, err)
		}
		if n == 0 {
			return nil
		}
		kept = copy(buf, rest)
	}
}

// parseProcs visits the lines in a piece of cgroup.procs and returns the incomplete last line. At
// the end of the file it visits the last line too.
func parseProcs(b []byte, atEnd bool, visit func(pid int)) (rest []byte, err error) {
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		if end < 0 && !atEnd {
			return b, nil
		}
		if end < 0 {
			end = len(b)
		}
		pid, ok := Decimal(b[:end])
		if !ok || pid > math.MaxInt32 {
			return nil, fmt.Errorf("%w: %.40q is not a process id", ErrMalformed, string(b[:end]))
		}
		visit(int(pid))
		b = b[min(end+1, len(b)):]
	}
	return nil, nil
}
