package selfprotect

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SmallPages restarts this program with execve(2) without huge pages, if the kernel would use them.
// It returns if they are disabled already or cannot be disabled. Otherwise the memory that the Go
// runtime allocates before main is a huge page of 2 MiB: the runtime uses a part and never returns
// the rest, which it considers untouched. The flag survives execve (include/linux/sched/coredump.h
// MMF_INIT_MASK, Linux 6.1). The process keeps its ID, arguments and environment.
func SmallPages() error {
	already, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0)
	if err != nil || already != 0 || os.Getenv(reexecEnv) != "" {
		return err
	}
	program, err := os.Executable()
	if err == nil {
		err = noHugePages()
	}
	if err == nil {
		err = unix.Exec(program, os.Args, append(os.Environ(), reexecEnv+"=1"))
	}
	return err
}

// reexecEnv is set in the environment of the restarted program. It prevents an endless loop on a
// kernel that does not keep the flag.
const reexecEnv = "JETTISON_SMALL_PAGES"

// WithHugePages calls do with huge pages enabled for this process, if permitted.
func WithHugePages(do func()) {
	if unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0) == nil {
		defer func() { _ = noHugePages() }() // disabled before
	}
	do()
}

// noHugePages disables huge pages for this process. Where the kernel uses them by default, as
// Debian's do (transparent_hugepage/enabled is "always"), most of a heap of a few MiB is in huge
// pages, and memory that the runtime returns from one is not free.
func noHugePages() error {
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("disable huge pages: %w", err)
	}
	return nil
}
