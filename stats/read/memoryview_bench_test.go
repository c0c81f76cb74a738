package read

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/stats"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"
)

// The rows of the table that other rows are compared with.
const (
	rowView    = "Reader.MemoryView"
	rowRaw     = "raw pread of the same files, nothing parsed"
	rowNode    = "Reader.Node, the cheap look"
	rowRawNode = "raw pread of its two files"
)

// BenchmarkMemoryView measures the look that an eviction for memory is based on, on bare pod
// cgroups of the real hierarchy, against the minimum cost of reading the same files, and
// against other libraries.
func BenchmarkMemoryView(b *testing.B) {
	table := newPodTable("memory view of bare pod cgroups, p50 of all looks", "raw", "ours")
	ran := false
	for _, pods := range []int{10, 110, 500, 1000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			contenders := viewers(b, pods)
			compete(b, contenders)
			table.add(pods, contenders, rowView)
			ran = true
		})
	}
	if ran {
		if err := table.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}

// viewers creates pods and all contenders. The libraries take part with one number of pods
// only: they take seconds per look.
func viewers(b *testing.B, pods int) []*contender {
	c := liveCollector(b)
	paths := makePods(b, pods)
	var s, untold stats.Summary
	if err := c.MemoryView(time.Now(), nil, &s); err != nil || len(s.Pods) != pods {
		b.Fatalf("look found %d pods of %d, error %v", len(s.Pods), pods, err)
	}
	index := knownPods(s.Pods)
	rawView, rawNode := openRaw(b, viewFiles(paths)), openRaw(b, []string{"/proc/meminfo", groupDir("memory.stat")})
	out := []*contender{
		{what: rowView, base: rowRaw, look: func() error { return c.MemoryView(time.Now(), index, &s) }},
		{what: rowRaw, look: rawView.read},
		{what: rowView + ", of pods that the runtime has not told of", base: rowRaw, look: func() error { return c.MemoryView(time.Now(), nil, &untold) }},
		{what: rowNode, base: rowRawNode, node: true, look: func() error { return c.Node(time.Now(), &s.Node) }},
		{what: rowRawNode, node: true, look: rawNode.read},
	}
	if pods == 110 {
		out = append(out, libraries(paths)...)
	}
	return out
}

// viewFiles returns the files that a memory view reads of pods.
func viewFiles(paths []string) (files []string) {
	names := []string{"memory.current", "memory.stat", "cgroup.events", "memory.events", "pids.current", "memory.pressure"}
	for _, path := range paths {
		for _, name := range names {
			files = append(files, groupDir(path)+"/"+name)
		}
		if strings.HasPrefix(path, "kubepods/pod") { // Guaranteed
			files = append(files, groupDir(path)+"/memory.max")
		}
	}
	return files
}

// rawReader reads files by one pread each and ignores the content: the minimum cost of any
// reader.
type rawReader struct {
	fds []int
	buf []byte
}

func openRaw(b *testing.B, files []string) *rawReader {
	b.Helper()
	r := &rawReader{buf: make([]byte, 32<<10)} // as the Reader's
	for _, file := range files {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			b.Fatal(file, err)
		}
		r.fds = append(r.fds, fd)
		b.Cleanup(func() { unix.Close(fd) })
	}
	return r
}

func (r *rawReader) read() error {
	for _, fd := range r.fds {
		if n, err := unix.Pread(fd, r.buf, 0); err != nil || n == 0 {
			return fmt.Errorf("pread: %d bytes, %w", n, err)
		}
	}
	return nil
}

// libraries returns the libraries that other agents read cgroups with. Each loads the cgroup by
// its path at every look, as those agents do: a manager keeps only the path.
func libraries(paths []string) []*contender {
	each := func(what string, stat func(path string) error) *contender {
		return &contender{what: what, base: rowRaw, look: func() error {
			for _, path := range paths {
				if err := stat(path); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			return nil
		}}
	}
	masked := func(mask cgroup2.StatMask) func(string) error {
		return func(path string) error {
			m, err := cgroup2.Load("/" + path)
			if err == nil {
				_, err = m.StatFiltered(mask)
			}
			return err
		}
	}
	return []*contender{
		each("containerd/cgroups Stat", masked(cgroup2.StatAll)),
		each("containerd/cgroups StatFiltered(StatMemory)", masked(cgroup2.StatMemory)),
		each("opencontainers/cgroups fs2 Stats", func(path string) error {
			m, err := fs2.NewManager(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, groupDir(path))
			if err == nil {
				_, err = m.Stats(nil)
			}
			return err
		}),
	}
}
