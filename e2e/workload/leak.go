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

// leakStep is allocated in one step: at 10 MiB/s every 25 ms.
const leakStep = 256 << 10

// leak follows commands, lines written to a FIFO: with a size, such as 10Mi, it leaks that much per
// second (0: at full speed); "free" ends that and frees everything. It starts within a millisecond;
// a pod needs seconds.
func leak(args []string) error {
	if len(args) != 1 {
		return errors.New("want a FIFO")
	}
	if err := unix.Mkfifo(args[0], 0o600); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make %s: %w", args[0], err)
	}
	fifo, err := os.OpenFile(args[0], os.O_RDWR, 0) // open for writing too: then it has no end of file
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
			return fmt.Errorf("read command %q from the FIFO: want a size or free (%v)", command, err)
		}
		told, done := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); leakUntil(told, int64(rate)) }()
		stop = func() { close(told); <-done }
	}
	return errors.New("the FIFO has ended")
}

// leakUntil leaks until the next command, and frees its memory.
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

// supervise runs one behaviour in a separate process, and restarts it each time that it is killed.
func supervise(args []string) error {
	for {
		child := exec.Command("/proc/self/exe", args...)
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			return err
		}
		// Not Wait: this process has its own reaper, which reaps first.
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
