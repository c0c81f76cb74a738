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
	// maxFiles bounds the descriptors that are held, but for three of the Watcher's own.
	maxFiles = 2048
	// pace is between two rounds of the thread while events come in a row: what comes meanwhile is one
	// wake. A first event never waits.
	pace = time.Millisecond
)

// Watcher waits for all that the kernel tells by itself: pressure triggers, and changes of the
// event files of cgroups. Its owner runs Wait on a goroutine of its own, takes Wakes, and ends it
// by Close. The other methods may be called from any goroutine; none of them waits for an event.
//
// What cannot be had (a descriptor, a short window, the priority) is missing from then on, and said
// once: see Refusals.
type Watcher struct {
	most   int  // files; fewer in a test
	plain  bool // tests: the priority of the thread that waits is left alone
	epoll  int
	signal int // eventfd: Close
	wakes  chan struct{}

	mu       sync.Mutex // guards the rest; held for a few microseconds at most, never across an open
	groups   map[string]*watched
	sources  []source // by the number in the epoll event
	free     []int32  // numbers of sources that are not used
	files    int      // descriptors held
	slot     slot
	refusals []error
	said     map[string]bool // refusals that were made before
	longOnly bool            // triggers with windows other than multiples of 2 s are refused
	running  bool
	closed   bool
	left     chan struct{} // closed when Wait has returned
}

// watched is what was added under one key.
type watched struct {
	key     string
	id      ID // of the cgroup; zero: not one
	isGroup bool
	sources []int32
	epoch   uint64 // of the wake that at is of, see slot
	at      int    // where in the wake; -1: there was no room
}

// source is one descriptor in the epoll.
type source struct {
	fd   int // -1: not used
	kind Happened
	// of this number, so that an event of a source that was removed is not taken for its successor's
	generation int32
	of         *watched
	rearm      bool // by reading it
}

// NewWatcher makes a Watcher of nothing yet. Close it.
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
	return &Watcher{most: maxFiles, epoll: epoll, signal: signal, wakes: make(chan struct{}, 1),
		groups: map[string]*watched{},
		said:   map[string]bool{}, left: make(chan struct{})}, nil
}

// Wait waits for events until Close, and fails only where the kernel does. It keeps its thread,
// with a raised priority where that is allowed. Call it once.
func (w *Watcher) Wait() error {
	w.mu.Lock()
	if w.closed || w.running {
		w.mu.Unlock()
		return fmt.Errorf("wait for events: %w", os.ErrClosed)
	}
	w.running = true
	w.mu.Unlock()
	defer close(w.left)
	runtime.LockOSThread()
	raised := false
	if !w.plain {
		var refused []error
		raised, refused = RaiseThread()
		w.refuse(refused...)
	}
	defer func() {
		// A thread that stays raised must not run anything else: locked, it ends with its goroutine.
		if !raised || lowerThread() == nil {
			runtime.UnlockOSThread()
		}
	}()
	return w.loop()
}

// loop is Wait on its thread. It does not allocate.
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
			_, _ = unix.Poll(rest[:], int(pace/time.Millisecond)) // interrupted: a shorter rest
		}
		last = now
	}
}

// round takes what epoll returned. It adds to dead the descriptors of sources that ended, to be
// closed.
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
			continue // removed between the event and now
		}
		dead = w.takeEvent(now, number, s, events[i].Events, buf, dead)
	}
	w.notify() // once a round: the loop that was woken by its first event takes them all
	return dead, false
}

// takeEvent takes one source's event.
func (w *Watcher) takeEvent(now time.Time, number int32, s *source, events uint32, buf []byte,
	dead []int) []int {
	what, ended := s.kind, false
	switch {
	case s.rearm:
		// The kernel tells until it is read (v6.12 fs/kernfs/file.c, kernfs_generic_poll), with EPOLLERR
		// in every event; only the read tells that the cgroup is gone.
		_, err := unix.Pread(s.fd, buf, 0)
		ended = err != nil && err != unix.EINTR
	default:
		// A trigger's event is cleared by the poll itself; EPOLLERR: its cgroup is gone
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

// notify makes sure that the loop takes what is in the slot. w.mu is held.
func (w *Watcher) notify() {
	if w.slot.wake.Events == 0 {
		return
	}
	select {
	case w.wakes <- struct{}{}:
	default: // a wake is waiting to be taken: this is in it
	}
}

// Wakes has one slot: a value in it says that Take has something to tell.
func (w *Watcher) Wakes() <-chan struct{} { return w.wakes }

// Take hands out all that happened since it was called last, and reports whether anything did. It
// does not allocate.
func (w *Watcher) Take(out *Wake) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slot.take(out)
}

// Refusals are what the watcher has to do without, each once: a call returns those since the one
// before. A Wake with Refused says that there is one.
func (w *Watcher) Refusals() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.refusals
	w.refusals = nil
	return out
}

// refuse says what cannot be had, unless it was said before.
func (w *Watcher) refuse(errs ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range errs {
		if text := err.Error(); !w.said[text] {
			w.said[text] = true
			w.refusals = append(w.refusals, err)
			w.slot.add(time.Now(), nil, Refused)
			w.notify()
		}
	}
}

// Close ends Wait and gives all descriptors back.
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
		<-w.left
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

// closeFiles closes descriptors, never with w.mu held: taking a trigger down takes an RCU grace
// period, 10 ms and more (v6.12 kernel/sched/psi.c, psi_trigger_destroy).
func closeFiles(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// exhausted reports whether an error means that there is no more to be had: descriptors, watches or
// memory.
func exhausted(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOSPC) ||
		errors.Is(err, unix.ENOMEM)
}
