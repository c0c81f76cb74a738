package selfprotect

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SmallPages runs this program anew, without huge pages, where the kernel would give them; it
// returns where that is so already, or cannot be. What the Go runtime takes before main is a page
// of 2 MiB else, of which it uses a part and gives nothing back: it believes that it has never
// touched the rest. That a process gets none outlives execve(2) (include/linux/sched/coredump.h
// MMF_INIT_MASK, Linux 6.1). The process keeps its id, and what it was called with.
func SmallPages() error {
	already, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0)
	if err != nil || already != 0 || os.Getenv(anew) != "" {
		return err
	}
	program, err := os.Executable()
	if err == nil {
		err = noHugePages()
	}
	if err == nil {
		err = unix.Exec(program, os.Args, append(os.Environ(), anew+"=1"))
	}
	return err
}

// anew is set in the environment of a program that was run anew: where a kernel does not keep the
// flag it would be for ever.
const anew = "JETTISON_SMALL_PAGES"

// WithHugePages does something as processes do that have huge pages, if this one may.
func WithHugePages(do func()) {
	if unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0) == nil {
		defer func() { _ = noHugePages() }() // it was so before
	}
	do()
}

// noHugePages has none from now on. Where the kernel gives them by itself, as Debian's do
// (transparent_hugepage/enabled is "always"), a heap of some MiB lies in them for the most part,
// and what is given back of one is not free.
func noHugePages() error {
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("have no huge pages: %w", err)
	}
	return nil
}
