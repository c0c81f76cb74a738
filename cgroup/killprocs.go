package cgroup

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killBatch  = 256 // processes whose descriptors are held at a time
	killRounds = 100 // a fork bomb that cannot be frozen may need many
)

// ProcKiller kills process by process where cgroup.kill is missing or refuses. It keeps its
// buffers. It is used by one goroutine at a time.
type ProcKiller struct {
	// Unfrozen: the groups are not frozen first. A write to cgroup.freeze waits for cgroup_mutex.
	Unfrozen bool

	walker   Walker
	buf      [4096]byte
	batch    [killBatch]procFd
	n        int
	next     int          // in the batch: the one that is expected
	now      map[int]bool // signalled in this round
	before   map[int]bool // signalled in the one before
	fresh    int          // signalled in this round for the first time
	foreign  bool         // there is a process that has no number here
	err      error
	deadline time.Time
	self     int
	visit    func(*Group) bool
	take     func(int)
	confirm  func(int)
}

type procFd struct {
	pid, fd int
	here    bool // it was in the group after its descriptor was opened
}

// NewProcKiller makes one.
func NewProcKiller() *ProcKiller {
	k := &ProcKiller{now: map[int]bool{}, before: map[int]bool{}, self: os.Getpid()}
	k.visit, k.take, k.confirm = k.group, k.open, k.mark
	return k
}

// Kill sends SIGKILL to every process of the group and of those below it, by pidfds (since v5.3),
// and returns how many. A number may be used again between the list and the signal: a process is
// signalled only if it is still listed once its descriptor is open. Processes that fork meanwhile:
// the groups are frozen first where the kernel can (cgroup.freeze, since v5.2), and all is done
// again until a round finds no new process: one that is listed then had its signal before that
// round, and a process with SIGKILL pending begins no fork. One that it is in the middle of it may
// finish, and the child is listed only in the end (v6.12 kernel/fork.c copy_process: the last look
// at signals is before cgroup_post_fork): until the group is empty, Kill it again. limit bounds a
// call: os.ErrDeadlineExceeded says that some may live. The agent's own process is never signalled.
func (k *ProcKiller) Kill(g *Group, limit time.Duration) (n int, err error) {
	k.deadline, k.err, k.foreign = time.Now().Add(limit), nil, false
	clear(k.before)
	if !k.Unfrozen && k.freeze(g) {
		defer func() {
			if thaw := g.thaw(); thaw != nil && !errors.Is(thaw, ErrVanished) {
				err = errors.Join(err, thaw)
			}
		}()
	}
	for range killRounds {
		clear(k.now)
		k.fresh = 0
		deep := k.walker.Walk(g, k.visit)
		n += k.fresh
		switch {
		case k.err != nil:
			return n, k.err
		case time.Now().After(k.deadline):
			return n, fmt.Errorf("kill the processes of cgroup /%s one by one: %w", g.path,
				os.ErrDeadlineExceeded)
		case k.fresh > 0:
			k.now, k.before = k.before, k.now
			continue
		case k.foreign:
			return n, fmt.Errorf("kill the processes of cgroup /%s one by one: "+
				"some are in another pid namespace: run the agent with hostPID", g.path)
		case deep:
			return n, fmt.Errorf("kill the processes of cgroup /%s one by one: "+
				"groups more than %d levels down were not looked at", g.path, walkDepth)
		}
		if e, err := g.Events(k.buf[:]); n == 0 && err == nil && e.Populated {
			return 0, fmt.Errorf("kill the processes of cgroup /%s one by one: it has some, and lists none",
				g.path)
		}
		return n, nil
	}
	return n, fmt.Errorf("kill the processes of cgroup /%s one by one: there were new ones %d times",
		g.path, killRounds)
}

// noteFrozen is the note on a group that is frozen by a ProcKiller. It is there before the group
// is, and goes after that: what a crash leaves frozen can be told from what somebody else has
// frozen. No owner of a group's directory can leave one, and be thawed by it (Trusted). One that an
// older agent has left where any could is not believed: it is there only where that agent crashed
// in the middle of a kill, which the next one goes on with, and SIGKILL ends a frozen process too
// (v6.12 kernel/signal.c complete_signal, do_freezer_trap).
const noteFrozen = Trusted + "cgroup.freeze"

// freeze stops the group's processes. false: the kernel cannot, or another process has stopped them
// already. Where there are no notes they are stopped all the same: who forks faster than he is
// killed would stay.
func (k *ProcKiller) freeze(g *Group) bool {
	b, err := g.read("cgroup.freeze", k.buf[:])
	if err != nil || string(chomp(b)) != "0" {
		return false
	}
	_ = g.SetNote(noteFrozen, "0")
	if g.write("cgroup.freeze", "1") == nil {
		return true
	}
	_ = g.RemoveNote(noteFrozen)
	return false
}

// thaw undoes freeze.
func (g *Group) thaw() error {
	err := g.write("cgroup.freeze", "0")
	if err == nil {
		_ = g.RemoveNote(noteFrozen) // where there are none it fails, and then there is none
	}
	return err
}

// Thaw lets the processes of the group go on if a ProcKiller has left them frozen, in a process
// that crashed in the middle of a kill. To be called when no ProcKiller is at it. What somebody
// else has frozen stays so.
func (g *Group) Thaw() (thawed bool, err error) {
	if _, noted, err := g.Note(noteFrozen); err != nil || !noted { // a kernel without notes has none
		return false, nil
	}
	if err := g.thaw(); err != nil {
		return false, err
	}
	return true, nil
}

// group goes through the processes of one group, batch by batch.
func (k *ProcKiller) group(g *Group) bool {
	for k.err == nil && time.Now().Before(k.deadline) {
		k.n, k.next = 0, 0
		err := k.list(g, k.take)
		if err == nil && k.n > 0 {
			err = k.list(g, k.confirm)
		}
		full := k.n == killBatch
		signalled := k.signal() // which empties the batch
		if err != nil && !errors.Is(err, ErrVanished) {
			k.err = err
		}
		if err != nil || !full || signalled == 0 {
			break
		}
	}
	return k.err == nil && time.Now().Before(k.deadline)
}

// list visits the processes of a group. In a threaded group only cgroup.threads can be read;
// processes are then those whose leading thread lies there.
func (k *ProcKiller) list(g *Group, visit func(int)) error {
	err := g.Procs(k.buf[:], visit)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = g.Threads(k.buf[:], visit)
	}
	return err
}

// open takes one process into the batch, unless this round has had it.
func (k *ProcKiller) open(pid int) {
	switch {
	case pid == 0:
		k.foreign = true
		return
	case k.n == killBatch || pid == k.self || k.now[pid]:
		return
	}
	fd, err := OpenPidfd(pid)
	switch err {
	case nil:
		k.batch[k.n] = procFd{pid: pid, fd: fd}
		k.n++
	case unix.ESRCH, unix.EINVAL, unix.ENOENT: // gone, or a thread that leads no process
	default:
		k.err = fmt.Errorf("open a descriptor of process %d: %w", pid, err)
	}
}

// mark notes that a process of the batch is still in the group. The list has the batch's order, so
// the next one is tried first.
func (k *ProcKiller) mark(pid int) {
	for i := range k.n {
		if p := &k.batch[(k.next+i)%k.n]; p.pid == pid {
			p.here = true
			k.next = (k.next + i + 1) % k.n
			return
		}
		if k.now[pid] {
			return // an earlier batch had it
		}
	}
}

// signal ends the batch, and returns how many it signalled.
func (k *ProcKiller) signal() (n int) {
	for _, p := range k.batch[:k.n] {
		if p.here {
			err := unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0)
			if err != nil && err != unix.ESRCH && k.err == nil {
				k.err = fmt.Errorf("kill process %d: %w", p.pid, err)
			}
			if err == nil {
				n++
			}
			if k.now[p.pid] = true; !k.before[p.pid] {
				k.fresh++
			}
		}
		unix.Close(p.fd)
	}
	k.n = 0
	return n
}
