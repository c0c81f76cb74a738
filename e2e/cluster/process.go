package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is a part of the cluster. It has its own process group, and ends with the process that
// started it, in every case.
type process struct {
	part
	log   string // path
	pid   int
	ended chan struct{} // closed when it was reaped
	err   error         // the error of Wait, valid after ended is closed
}

// part describes a process.
type part struct {
	name  string
	argv  []string
	env   []string
	ready func() error // nil: ready when started
}

// start runs a part, with its output appended to a file named after it, and waits until it is
// ready.
func start(ctx context.Context, p part, dir string) (*process, error) {
	log := filepath.Join(dir, p.name+".log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	run := &process{part: p, log: log, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the child ends, so this goroutine keeps its thread.
		runtime.LockOSThread()
		cmd := exec.Command(p.argv[0], p.argv[1:]...)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Env = append(os.Environ(), p.env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		err := cmd.Start()
		if err == nil {
			run.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			run.err = cmd.Wait()
		}
		close(run.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	if p.ready == nil {
		return run, nil
	}
	return run, run.untilReady(ctx)
}

// startDeadline is ten times the time that a part needs on two idle cores; so is stopDeadline.
const (
	startDeadline = 2 * time.Minute
	stopDeadline  = 15 * time.Second
)

// signal sends a signal to its process group. A process that has ended is no error.
func (p *process) signal(s syscall.Signal) error {
	if err := syscall.Kill(-p.pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// stop sends SIGTERM, and SIGKILL after a deadline.
func (p *process) stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopDeadline):
	}
	err := p.signal(syscall.SIGKILL)
	<-p.ended
	return errors.Join(err, fmt.Errorf("%s did not end within %v of SIGTERM", p.name, stopDeadline))
}

// tail returns the end of its log.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// untilReady polls until the part is ready, the process ends, or the time is up.
func (p *process) untilReady(ctx context.Context) error {
	deadline := time.After(startDeadline)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("%s ended before it was ready: %w\n%s", p.name, p.err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, ctx.Err())
		case <-deadline:
			return fmt.Errorf("%s is not ready after %v: %w\n%s", p.name, startDeadline, err, p.tail())
		}
	}
}
