package cgroup

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFiles is the maximum number of descriptors of watches.
	maxFiles = 2048
	// pace is the pause between two rounds of the thread during a series of events: the events of one
	// pause cause one wake. The first event of a series never waits.
	pace = time.Millisecond
)

// Watcher waits for the events that the kernel sends: pressure triggers, and changes of the
// event files of cgroups. Its owner runs Wait on a separate goroutine, takes Wakes, and calls
// Close. Any goroutine may call the other methods; none of them waits for an event.
//
// If the kernel refuses a resource (a descriptor, a short window, the priority), the Watcher works
// without that resource and reports the refusal once (Refusals).
type Watcher struct {
	fileLimit    int  // maxFiles; lower in a test
	keepPriority bool // tests: do not raise the priority of the waiting thread
	epoll        int
	signal       int // eventfd with which Close ends Wait
	wakes        chan struct{}

	mu       sync.Mutex // guards the rest; held for a few microseconds at most, never across an open
	groups   map[string]*watched
	sources  []source // by the number in the epoll event
	free     []int32  // unused numbers of sources
	files    int      // number of open descriptors of watches
	slot     slot
	refusals []error
	reported map[string]bool // refusals reported before
	longOnly bool            // the kernel rejects windows other than multiples of 2 s
	running  bool
	closed   bool
	waitDone chan struct{} // closed when Wait has returned
}

// watched holds the sources added under one key.
type watched struct {
	key       string
	id        ID // of the cgroup; zero: not a cgroup
	isGroup   bool
	sources   []int32
	epoch     uint64 // of the wake that slotIndex refers to, see slot
	slotIndex int    // index in the wake; -1: the wake is full
}

// source is one descriptor in the epoll.
type source struct {
	fd   int // -1: not used
	kind WatchEvents
	// distinguishes sources with the same number, so that an event of a removed source is not
	// attributed to the next one
	generation int32
	of         *watched
	rearm      bool // a read must rearm the notification
}

// NewWatcher returns a Watcher without watches. Call Close.
func NewWatcher() (*Watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make epoll: %w", err)
	}
	signal, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, signal, &unix.EpollEvent{Events: unix.EPOLLIN,
			Fd: -1})
		if err != nil {
			unix.Close(signal)
		}
	}
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	return &Watcher{fileLimit: maxFiles, epoll: epoll, signal: signal, wakes: make(chan struct{}, 1),
		groups:   map[string]*watched{},
		reported: map[string]bool{}, waitDone: make(chan struct{})}, nil
}

// Wait waits for events until Close. It returns an error if a system call fails, and os.ErrClosed
// after Close or if it is called a second time. It runs on a separate thread, with raised priority
// if allowed.
func (w *Watcher) Wait() error {
	w.mu.Lock()
	if w.closed || w.running {
		w.mu.Unlock()
		return fmt.Errorf("wait for events: %w", os.ErrClosed)
	}
	w.running = true
	w.mu.Unlock()
	defer close(w.waitDone)
	runtime.LockOSThread()
	raised := false
	if !w.keepPriority {
		var refused []error
		raised, refused = RaiseThread()
		w.addRefusals(refused...)
	}
	defer func() {
		// A thread with raised priority must not run other goroutines: while locked, it ends
		// with its goroutine.
		if !raised || LowerThread(0) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return w.loop()
}

// loop waits for events on the calling thread until Close. It does not allocate.
func (w *Watcher) loop() error {
	var events [128]unix.EpollEvent
	var buf [4096]byte
	dead := make([]int, 0, len(events))
	rest := [1]unix.PollFd{{Fd: int32(w.signal), Events: unix.POLLIN}}
	var last time.Time
	for {
		n, err := unix.EpollWait(w.epoll, events[:], -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for events: %w", err)
		}
		now := time.Now()
		closed := false
		if dead, closed = w.round(now, events[:n], buf[:], dead[:0]); closed {
			return nil
		}
		closeFiles(dead)
		if now.Sub(last) < 2*pace {
			_, _ = unix.Poll(rest[:], int(pace/time.Millisecond)) // a signal shortens the pause
		}
		last = now
	}
}

// round handles a batch of epoll events. It adds the descriptors of sources that ended to dead,
// for closing.
func (w *Watcher) round(now time.Time, events []unix.EpollEvent, buf []byte, dead []int) (_ []int,
	closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return dead, true
	}
	for i := range events {
		number := events[i].Fd
		if number < 0 || int(number) >= len(w.sources) {
			continue
		}
		s := &w.sources[number]
		if s.fd < 0 || s.generation != events[i].Pad {
			continue // removed after the event
		}
		dead = w.takeEvent(now, number, s, events[i].Events, buf, dead)
	}
	w.notify() // once per round: one wake covers all events
	return dead, false
}

// takeEvent handles one source's event.
func (w *Watcher) takeEvent(now time.Time, number int32, s *source, events uint32, buf []byte,
	dead []int) []int {
	what, ended := s.kind, false
	switch {
	case s.rearm:
		// The kernel signals until the file is read (v6.12 fs/kernfs/file.c,
		// kernfs_generic_poll), with EPOLLERR in every event; only the read shows that the
		// cgroup is gone.
		_, err := unix.Pread(s.fd, buf, 0)
		ended = err != nil && err != unix.EINTR
	default:
		// The poll itself clears a trigger's event; EPOLLERR: its cgroup is gone
		// (kernel/sched/psi.c, psi_trigger_poll).
		ended = events&unix.EPOLLERR != 0
	}
	if ended {
		what = Ended
	}
	of := s.of
	w.slot.add(now, of, what)
	if ended {
		dead = w.dropSource(number, dead)
		if len(of.sources) == 0 && w.groups[of.key] == of {
			delete(w.groups, of.key)
		}
	}
	return dead
}

// notify signals the loop that the slot has events. w.mu is held.
func (w *Watcher) notify() {
	if w.slot.wake.Events == 0 {
		return
	}
	select {
	case w.wakes <- struct{}{}:
	default: // a pending wake includes this event
	}
}

// Wakes returns a channel with one slot: a value means that Take has events.
func (w *Watcher) Wakes() <-chan struct{} { return w.wakes }

// Take moves all events since its last call into out, and reports whether out has events. It does
// not allocate.
func (w *Watcher) Take(out *Wake) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slot.take(out)
}

// Refusals returns the refusals since the previous call. Each refusal is returned once. A Wake with
// Refused announces new refusals.
func (w *Watcher) Refusals() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.refusals
	w.refusals = nil
	return out
}

// addRefusals records refusals that were not reported before.
func (w *Watcher) addRefusals(errs ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range errs {
		if text := err.Error(); !w.reported[text] {
			w.reported[text] = true
			w.refusals = append(w.refusals, err)
			w.slot.add(time.Now(), nil, Refused)
			w.notify()
		}
	}
}

// Close ends Wait and closes all descriptors.
func (w *Watcher) Close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	running := w.running
	_, _ = unix.Write(w.signal, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	w.mu.Unlock()
	if running {
		<-w.waitDone
	}
	var dead []int
	w.mu.Lock()
	for key, of := range w.groups {
		dead = w.drop(of, dead)
		delete(w.groups, key)
	}
	w.mu.Unlock()
	closeFiles(append(dead, w.signal, w.epoll))
}

// closeFiles closes descriptors, never with w.mu held: removing a trigger takes an RCU grace
// period, 10 ms and more (v6.12 kernel/sched/psi.c, psi_trigger_destroy).
func closeFiles(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// exhausted reports whether an error means that a limit of descriptors, watches or memory is
// reached.
func exhausted(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOSPC) ||
		errors.Is(err, unix.ENOMEM)
}
