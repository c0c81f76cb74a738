package kill

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read"
)

const (
	maxPinned = 256  // processes of a tree that the pin opens
	maxTree   = 1024 // processes of a tree that are killed
	// searchLimit bounds the search for the processes of a tree during its kill: it leaves the runtime
	// time for the rest within eviction.DieLimit.
	searchLimit = 5 * time.Second
)

// procMount is the proc file system of the agent's PID namespace, in which it sends signals.
const procMount = "/proc"

const (
	stopPause = 200 * time.Microsecond // between two looks at processes that must stop
	taskBatch = 64                     // threads listed at a time
)

// processTree is a process and its descendants. Their cgroup has other processes too, so each is killed by
// its own pidfd. Goroutines search for the descendants: that takes 50 ms for 3,000 threads.
type processTree struct {
	ladder   Ladder
	progress progress
	whole    bool          // the first process is enough: its descendants die with it
	limit    int           // maxTree
	within   time.Duration // searchLimit; longer in tests

	alive   context.Context // ended by Close: searches end
	end     context.CancelFunc
	pinning context.Context // of the search that the pin starts; ended by Kill and Close
	endPin  context.CancelFunc

	searches  sync.WaitGroup // goroutines; Close waits for them
	searching sync.Mutex     // held by the goroutine that searches

	mu        sync.Mutex
	processes []stats.ProcessID // guarded by mu; written by the goroutine that searches
	fds       []int             // the same: of processes; only Close closes them
	running   int               // guarded by mu: searches that have not ended
	kill      *treeKill         // guarded by mu: in progress; nil: none
	cut       error             // guarded by mu: why more processes may live; nil: all are killed
	closed    bool              // guarded by mu
}

// treeKill is a kill of a tree in progress.
type treeKill struct {
	done chan struct{} // closed at its end
	err  error         // written before that
}

// newProcessTree returns a tree without processes.
func newProcessTree(ladder Ladder, limit int) *processTree {
	t := &processTree{ladder: ladder, limit: limit, within: searchLimit}
	t.alive, t.end = context.WithCancel(context.Background())
	t.pinning, t.endPin = context.WithCancel(t.alive)
	return t
}

// pinTree opens a pidfd of a process, and starts the search for its descendants. It waits for the
// search for pidfdLimit. ESRCH: the process has ended, or its PID was reused.
func pinTree(first stats.ProcessID, ladder Ladder) (*processTree, error) {
	t := newProcessTree(ladder, maxTree)
	if err := t.add(first); err != nil {
		t.end()
		return nil, err
	}
	if t.whole = isNamespaceInit(first.PID); t.whole {
		return t, nil
	}
	found := make(chan struct{})
	t.search(func() {
		_ = t.extend(t.pinning, maxPinned) // the kill searches again
		close(found)
	})
	timer := time.NewTimer(pidfdLimit)
	defer timer.Stop()
	select {
	case <-found:
	case <-timer.C:
	}
	return t, nil
}

// isNamespaceInit reports whether a process is process 1 of a PID namespace below the node's. The
// kernel kills the others of the namespace with it, and reports its end after theirs
// (pid_namespaces(7)).
func isNamespaceInit(pid int) bool {
	b, _ := os.ReadFile(fmt.Sprintf("%s/%d/status", procMount, pid))
	_, rest, _ := bytes.Cut(b, []byte("\nNSpid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	ids := bytes.Fields(line)
	return len(ids) > 1 && string(ids[len(ids)-1]) == "1"
}

// search runs a search in a goroutine, one at a time.
func (t *processTree) search(run func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.startSearch(run)
}

// startSearch implements search. t.mu is held.
func (t *processTree) startSearch(run func()) {
	t.running++
	t.searches.Go(func() {
		t.searching.Lock()
		defer t.searching.Unlock()
		run()
		t.mu.Lock()
		t.running--
		t.mu.Unlock()
	})
}

// extend adds the descendants that are not in the tree, up to limit processes in total, until ctx
// ends. An error means that some may be missing. Only the goroutine that searches calls it.
func (t *processTree) extend(ctx context.Context, limit int) (failed error) {
	for i := 0; i < len(t.processes) && len(t.processes) < limit; i++ {
		parent := t.processes[i]
		children, err := read.Children(ctx, procMount, parent.PID)
		for _, pid := range children {
			if ctx.Err() != nil {
				return failed
			}
			if one := t.extendBy(pid, parent, limit); failed == nil {
				failed = one
			}
		}
		if failed == nil {
			failed = err
		}
	}
	return failed
}

// extendBy adds one child of a process of the tree.
func (t *processTree) extendBy(pid int, parent stats.ProcessID, limit int) error {
	start, err := read.StartTicks(procMount, pid)
	one := stats.ProcessID{PID: pid, Start: start}
	if err == nil && len(t.processes) < limit && !slices.Contains(t.processes, one) {
		err = t.addChild(parent, one)
	}
	if isGone(err) {
		return nil
	}
	return err
}

// add adds the first process.
func (t *processTree) add(p stats.ProcessID) error { return t.addChild(stats.ProcessID{}, p) }

// addChild opens a pidfd and compares the start time and the parent afterwards: then the pidfd is
// that process's. Start times are equal within 10 ms, in which a PID is reused if most others are
// in use. The zero parent is any. Only pinTree and the goroutine that searches call addChild.
func (t *processTree) addChild(parent, p stats.ProcessID) error {
	if p.PID <= 1 || p.PID == os.Getpid() {
		return unix.ESRCH
	}
	fd, err := cgroup.OpenPidfd(p.PID)
	if err != nil {
		return err
	}
	if err = identify(p, parent.PID); err == nil && parent.PID != 0 {
		err = identify(parent, 0)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.processes, t.fds = append(t.processes, p), append(t.fds, fd)
	return nil
}

// identify returns ESRCH if a process no longer has its PID, or is not a child of parent (0: any).
func identify(p stats.ProcessID, parent int) error {
	f, err := readStat(filepath.Join(procMount, strconv.Itoa(p.PID)))
	switch {
	case isGone(err):
		return unix.ESRCH
	case err != nil:
		return err
	case string(f[statStart]) != strconv.FormatUint(p.Start, 10),
		parent != 0 && string(f[statParent]) != strconv.Itoa(parent):
		return unix.ESRCH
	}
	return nil
}

// Kill sends SIGKILL to each process, also to those forked since the last call. It waits for
// 2*slowKill at most. nil means killed, or in progress (Struck): WaitEmpty then returns the outcome.
func (t *processTree) Kill() error {
	if !t.ladder.has(Pidfd) {
		return fmt.Errorf("the configured kill steps (%s) lack %s, which a process in a shared cgroup needs",
			t.ladder, Pidfd)
	}
	k, err := t.startKill()
	if err != nil {
		return err
	}
	timer := time.NewTimer(2 * slowKill)
	defer timer.Stop()
	select {
	case <-k.done:
		return k.err
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kill != k { // it has ended meanwhile
		return k.err
	}
	t.progress.begin()
	return nil
}

// startKill starts a kill, or returns the one in progress.
func (t *processTree) startKill() (*treeKill, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, os.ErrClosed
	case t.kill != nil:
		return t.kill, nil
	}
	k := &treeKill{done: make(chan struct{})}
	t.kill = k
	t.endPin() // the kill searches again
	t.startSearch(func() {
		err := t.strike()
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case err == nil:
			t.progress.begin()
			t.progress.singled(nil)
		case t.progress.killed.Load(): // Kill does not wait any more
			t.progress.singled(err)
		}
		k.err, t.kill = err, nil
		close(k.done)
	})
	return k, nil
}

// strike kills the processes. It stops a tree first: the kernel gives the children of a process that
// dies another parent, so that they are not found. A process that it has stopped is killed in any
// case.
func (t *processTree) strike() error {
	ctx, end := context.WithTimeout(t.alive, t.within)
	defer end()
	until := time.Now().Add(slowKill)
	var searchErr error // of the last round, which looks at all processes again
	for known := 0; known < len(t.fds) && !t.whole && ctx.Err() == nil; {
		known = len(t.fds)
		_ = t.signal(unix.SIGSTOP)
		t.awaitStop(until)
		searchErr = t.extend(ctx, t.limit)
	}
	if err := t.signal(unix.SIGKILL); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.whole || t.cut != nil:
	case len(t.fds) == t.limit || ctx.Err() != nil:
		t.cut = fmt.Errorf("the container shares its cgroup and has %d processes or more: "+
			"only as many were killed", len(t.fds))
	case searchErr != nil:
		t.cut = fmt.Errorf("find the processes of a container that shares its cgroup: %w", searchErr)
	}
	return t.cut
}

// awaitStop waits until every process has stopped or ended, until the given time: the kernel stops a
// process only when it returns from a system call, and a fork may be in flight.
func (t *processTree) awaitStop(until time.Time) {
	for !t.stopped(until) && time.Now().Before(until) {
		time.Sleep(stopPause)
	}
}

// stopped reports whether one look finds every process stopped or ended. A process with a tracer in
// the tree may run on until the tracer has stopped. At the given time it returns false.
func (t *processTree) stopped(until time.Time) bool {
	for _, p := range t.processes {
		if time.Now().After(until) || !isStopped(procMount, p, until) {
			return false
		}
	}
	return true
}

// isStopped reports whether each thread of a process has stopped or ended. There may be thousands, so
// it returns false at the given time.
func isStopped(proc string, p stats.ProcessID, until time.Time) bool {
	dir := filepath.Join(proc, strconv.Itoa(p.PID))
	f, err := readStat(dir)
	switch {
	case isGone(err), err == nil && string(f[statStart]) != strconv.FormatUint(p.Start, 10):
		return true
	case err != nil || !hasStopped(f):
		return false
	case string(f[statThreads]) == "1":
		return true
	}
	tasks, err := os.Open(filepath.Join(dir, "task"))
	if err != nil {
		return isGone(err)
	}
	defer func() { _ = tasks.Close() }()
	for {
		names, listErr := tasks.Readdirnames(taskBatch)
		for _, name := range names {
			if time.Now().After(until) {
				return false
			}
			f, err := readStat(filepath.Join(tasks.Name(), name))
			if err != nil && !isGone(err) || err == nil && !hasStopped(f) {
				return false
			}
		}
		if listErr != nil {
			return listErr == io.EOF || isGone(listErr)
		}
	}
}

// signal sends a signal to each process. Only the goroutine that searches calls it.
func (t *processTree) signal(sig unix.Signal) (err error) {
	for i, fd := range t.fds {
		if e := unix.PidfdSendSignal(fd, sig, nil, 0); e != nil && e != unix.ESRCH {
			err = fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), t.processes[i].PID, e)
		}
	}
	return err
}

// Killed reports whether a Kill succeeded or is in progress.
func (t *processTree) Killed() bool { return t.progress.killed.Load() }

// Struck reports whether the signals were sent.
func (t *processTree) Struck() bool { return t.progress.struck.Load() != 0 }

// KilledAt returns when the signals were sent; the current time until then.
func (t *processTree) KilledAt() Stamp { return t.progress.struckAt() }

// WaitEmpty waits until the processes have ended, and the searches for them. It returns ErrNotKilled
// if a kill failed after Kill had returned. Close must not run concurrently.
func (t *processTree) WaitEmpty(ctx context.Context, limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		left := time.Until(end)
		alive, searching, cutErr := t.look()
		failed := t.progress.failed(Pidfd)
		switch {
		case failed != nil && t.progress.killed.Load():
			t.progress.retract() // so that Clean has the runtime kill the victim
			return failed
		case len(alive) == 0 && !searching && cutErr != nil:
			return fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, cutErr)
		case len(alive) == 0 && !searching:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case left <= 0:
			return fmt.Errorf("wait for %d processes: %w", len(alive), os.ErrDeadlineExceeded)
		}
		_, _ = unix.Poll(alive, int(min(left, sweepFirst).Milliseconds())+1)
	}
}

// look returns the pidfds of the processes that have not ended, whether a search may find more, and
// the error of a tree with processes that were not killed.
func (t *processTree) look() (alive []unix.PollFd, searching bool, cutErr error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]unix.PollFd, 0, len(t.fds))
	for _, fd := range t.fds {
		out = append(out, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	_, _ = unix.Poll(out, 0)
	alive = slices.DeleteFunc(out, func(p unix.PollFd) bool { return p.Revents != 0 })
	return alive, t.running > 0, t.cut
}

// Close ends the searches, waits for them, and closes the pidfds. A kill in progress sends its
// signals first.
func (t *processTree) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.end()
	t.searches.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fd := range t.fds {
		unix.Close(fd)
	}
	t.fds = nil
}
