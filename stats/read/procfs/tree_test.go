package procfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/stats"
)

// TreeMemory adds up the anonymous memory of a process and its descendants, each thread's children
// included, and takes the largest shared memory. Without the first process's figures it fails: they
// are unknown, not 0.
func TestTreeMemory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	process := func(pid, anon, shmem int) {
		write(fmt.Sprintf("%d/status", pid), fmt.Sprintf("Name:\tRssAnon: 7 kB\nRssAnon:\t%8d kB\nRssShmem:\t%8d kB\n", anon, shmem))
	}
	process(10, 100, 5)
	write("10/task/10/children", "")
	write("10/task/11/children", "20 21 ")
	process(20, 30, 9)
	write("20/task/20/children", "30 ")
	write("21/status", "Name:\tzombie\n")
	process(30, 1, 0)
	// a process may have 65,536 supplementary groups, in a line before its memory (setgroups(2))
	write("30/status", "Groups:\t"+strings.Repeat("100000 ", 1<<16)+"\nRssAnon:\t 1 kB\nRssShmem:\t 0 kB\n")
	p := &Proc{mount: dir}
	if anon, shmem, err := p.TreeMemory(stats.ProcessID{PID: 10}); anon != 131<<10 || shmem != 9<<10 || err != nil {
		t.Errorf("memory of the tree = %d and %d bytes (%v), want %d and %d", anon, shmem, err, 131<<10, 9<<10)
	}
	for _, pid := range []int{21, 99} {
		if anon, shmem, err := p.TreeMemory(stats.ProcessID{PID: pid}); err == nil {
			t.Errorf("memory of process %d = %d and %d bytes, want an error", pid, anon, shmem)
		}
	}
}
