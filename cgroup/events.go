package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Events holds cgroup.events.
type Events struct {
	Populated bool // the cgroup or a descendant has a live process
}

// ParseEvents parses cgroup.events. A file without a populated line is malformed.
func ParseEvents(b []byte) (Events, error) {
	populated := uint64(2)
	for len(b) > 0 {
		var key, value []byte
		key, value, b = nextPair(b)
		if string(key) != "populated" {
			continue
		}
		if err := store(&populated, key, value); err != nil {
			return Events{}, err
		}
	}
	if populated > 1 {
		return Events{}, fmt.Errorf("%w: populated is 0 or 1", ErrMalformed)
	}
	return Events{Populated: populated == 1}, nil
}

// Events reads cgroup.events. The root cgroup has no cgroup.events.
func (g *Group) Events(buf []byte) (Events, error) {
	b, err := g.readKept(fileCgroupEvents, buf)
	if err != nil {
		return Events{}, err
	}
	e, err := ParseEvents(b)
	if err != nil {
		return e, g.parseError("cgroup.events", err)
	}
	return e, nil
}

// WaitEmpty blocks until the group has no live process, limit has passed (os.ErrDeadlineExceeded)
// or ctx ends. A group that vanished is empty. The kernel raises POLLPRI when cgroup.events changes
// (cgroup_file_notify), and the read after each wake arms the notification again.
func (g *Group) WaitEmpty(ctx context.Context, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	ended, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("make eventfd: %w", err)
	}
	defer unix.Close(ended)
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_, _ = unix.Write(ended, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken // close the descriptor only after the write
		}
	}()
	var buf [256]byte
	for {
		e, err := g.Events(buf[:])
		if errors.Is(err, ErrVanished) || err == nil && !e.Populated {
			return nil
		}
		if err != nil {
			return err
		}
		left := time.Until(deadline)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("wait for cgroup /%s to be empty: %w", g.path, ctx.Err())
		case left <= 0:
			return fmt.Errorf("wait for cgroup /%s to be empty: %w", g.path, os.ErrDeadlineExceeded)
		}
		fds := []unix.PollFd{{Fd: int32(g.kept[fileCgroupEvents] - 1), Events: unix.POLLPRI},
			{Fd: int32(ended), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && err != unix.EINTR {
			return fmt.Errorf("poll cgroup %s: %w", g.file("cgroup.events"), err)
		}
	}
}
