package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// churned is the number of pods that one process of churn has at a time.
const churned = 4

// churn creates cgroups of pods, each with one of a container, and removes them again, as fast as
// the kernel allows. Each mkdir and rmdir holds the lock of the directory and cgroup_mutex, and
// allocates memory meanwhile.
func churn(args []string) error {
	if len(args) != 1 {
		return errors.New("want a cgroup's directory")
	}
	for i := 0; ; i++ {
		pod := filepath.Join(args[0], fmt.Sprintf("pod%08x-c0de-4000-8000-%012x", os.Getpid(), i))
		if err := unix.Mkdir(pod, 0o755); err != nil {
			return fmt.Errorf("mkdir %s: %w", pod, err)
		}
		if err := unix.Mkdir(pod+"/c", 0o755); err != nil {
			return fmt.Errorf("mkdir %s/c: %w", pod, err)
		}
		if i < churned {
			continue
		}
		old := filepath.Join(args[0], fmt.Sprintf("pod%08x-c0de-4000-8000-%012x", os.Getpid(), i-churned))
		for _, dir := range []string{old + "/c", old} {
			if err := unix.Rmdir(dir); err != nil {
				return fmt.Errorf("rmdir %s: %w", dir, err)
			}
		}
	}
}
