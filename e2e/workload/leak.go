package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// leakStep is taken at once: at 10 MiB/s each 25 ms.
const leakStep = 256 << 10

// leak does as it is told by lines that others write to a FIFO: a size, as 10Mi, is leaked each second from then on (0: as fast as it
// goes); "free" ends that and gives everything back. It starts within a millisecond, where a pod takes seconds to.
func leak(args []string) error {
	if len(args) != 1 {
		return errors.New("want a FIFO")
	}
	if err := unix.Mkfifo(args[0], 0o600); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make %s: %w", args[0], err)
	}
	fifo, err := os.OpenFile(args[0], os.O_RDWR, 0) // for writing too: then it never ends
	if err != nil {
		return err
	}
	stop := func() {}
	for lines := bufio.NewScanner(fifo); lines.Scan(); {
		stop()
		stop = func() {}
		command := strings.TrimSpace(lines.Text())
		if command == "free" {
			continue
		}
		var rate size
		if err := rate.Set(command); err != nil || rate < 0 {
			return fmt.Errorf("told to leak %q a second (%v)", command, err)
		}
		told, done := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); leakUntil(told, int64(rate)) }()
		stop = func() { close(told); <-done }
	}
	return errors.New("its FIFO has ended")
}

// leakUntil leaks until told otherwise, and gives back what it has.
func leakUntil(told <-chan struct{}, rate int64) {
	start := time.Now()
	var all [][]byte
	defer func() {
		for _, b := range all {
			_ = unix.Munmap(b)
		}
	}()
	now := make(chan time.Time)
	close(now)
	for done := int64(0); ; done += leakStep {
		var due <-chan time.Time = now
		if rate > 0 {
			due = time.After(time.Until(start.Add(time.Duration(float64(done) / float64(rate) * float64(time.Second)))))
		}
		select {
		case <-told:
			return
		case <-due:
		}
		b, err := unix.Mmap(-1, 0, leakStep, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			<-told
			return
		}
		all = append(all, b)
		for i := 0; i < len(b); i += 4096 {
			b[i] = byte(i>>12) | 1
		}
	}
}

// again runs one behaviour in a process of its own, and anew each time that is killed.
func again(args []string) error {
	for {
		child := exec.Command("/proc/self/exe", args...)
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			return err
		}
		// Not Wait: the process that reaps first here is the process's own reaper.
		pid := child.Process.Pid
		if err := child.Process.Release(); err != nil {
			return err
		}
		if err := waitGone(pid); err != nil {
			return err
		}
	}
}

// waitGone waits until a process has ended.
func waitGone(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
