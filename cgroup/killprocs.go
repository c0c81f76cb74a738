package cgroup

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killBatch  = 256 // processes with open descriptors at a time
	killRounds = 100 // a fork bomb that cannot be frozen may need many rounds
)

// ProcKiller kills process by process if cgroup.kill is missing or fails. It reuses its
// buffers. Use it from one goroutine at a time.
type ProcKiller struct {
	// Unfrozen: do not freeze the groups first, because a write to cgroup.freeze waits for
	// cgroup_mutex.
	Unfrozen bool
	// Ended: once it is true, no process is signalled any more: processes listed later are not the
	// caller's to kill. nil: never.
	Ended *atomic.Bool
	// Spare reports whether a child of the group is not to be killed. nil: none.
	Spare func(name []byte, child *Group) bool

	walker          Walker
	buf             [4096]byte
	batch           [killBatch]procFd
	n               int
	next            int          // index of the batch entry that is expected next
	signalled       map[int]bool // processes signalled in this round
	signalledBefore map[int]bool // processes signalled in the previous round
	fresh           int          // number of processes signalled for the first time in this round
	foreign         bool         // a process has no ID in this pid namespace
	spared          bool         // a child was spared
	err             error
	deadline        time.Time
	self            int
	visit           func(*Group) bool
	collect         func(int)
	confirm         func(int)
}

type procFd struct {
	pid, fd   int
	confirmed bool // listed in the group after its descriptor was opened
}

// NewProcKiller returns a ProcKiller.
func NewProcKiller() *ProcKiller {
	k := &ProcKiller{signalled: map[int]bool{}, signalledBefore: map[int]bool{}, self: os.Getpid()}
	k.visit, k.collect, k.confirm = k.group, k.open, k.mark
	return k
}

// Kill sends SIGKILL to every process of the group and its descendants, by pidfds (since v5.3), and
// returns their number. A process ID may be reused between the list and the signal, so a process is
// signalled only if it is still listed after its descriptor is open.
//
// Processes may fork meanwhile. Therefore Kill freezes the groups first if the kernel supports it
// (cgroup.freeze, since v5.2), and repeats until a round finds no new process. All processes listed
// in that round were signalled before, and a process with SIGKILL pending starts no fork. But it
// may finish a fork in progress, and the child is listed only at the end of that fork (v6.12
// kernel/fork.c copy_process: the last check for signals is before cgroup_post_fork). Call Kill
// again until the group is empty.
//
// limit is the timeout of a call, except for its freeze and thaw, which may wait for a kernel lock
// (set Unfrozen to avoid them). After os.ErrDeadlineExceeded some processes may be alive. Kill never
// signals the agent's own process.
func (k *ProcKiller) Kill(g *Group, limit time.Duration) (n int, err error) {
	k.deadline, k.err, k.foreign, k.spared = time.Now().Add(limit), nil, false, false
	clear(k.signalledBefore)
	if !k.Unfrozen && k.freeze(g) {
		defer func() {
			if thaw := g.thaw(); thaw != nil && !errors.Is(thaw, ErrVanished) {
				err = errors.Join(err, thaw)
			}
		}()
	}
	for range killRounds {
		clear(k.signalled)
		k.fresh = 0
		deep := k.walker.Walk(g, k.visit)
		n += k.fresh
		switch {
		case k.ended():
			return n, nil
		case k.err != nil:
			return n, k.err
		case time.Now().After(k.deadline):
			return n, fmt.Errorf("kill the processes of cgroup /%s one by one: %w", g.path,
				os.ErrDeadlineExceeded)
		case k.fresh > 0:
			k.signalled, k.signalledBefore = k.signalledBefore, k.signalled
			continue
		case k.walker.Err() != nil:
			return n, fmt.Errorf("kill one by one: %w", k.walker.Err())
		case k.foreign:
			return n, fmt.Errorf("kill the processes of cgroup /%s one by one: "+
				"some are in another pid namespace: run the agent with hostPID", g.path)
		case deep:
			return n, fmt.Errorf("kill the processes of cgroup /%s one by one: "+
				"groups more than %d levels deep were skipped", g.path, walkDepth)
		}
		if e, err := g.Events(k.buf[:]); n == 0 && !k.spared && err == nil && e.Populated {
			return 0, fmt.Errorf("kill the processes of cgroup /%s one by one: populated, but no process listed",
				g.path)
		}
		return n, nil
	}
	return n, fmt.Errorf("kill the processes of cgroup /%s one by one: new processes in each of %d rounds",
		g.path, killRounds)
}

// noteFrozen is the note on a group frozen by a ProcKiller. It is set before the freeze and removed
// after the thaw. It distinguishes a freeze that a crash left behind from a freeze by another
// program. It is Trusted, so that the owner of the group's directory cannot set it to have the
// group thawed. An older agent used a name that any owner can set. Such notes are ignored: they
// exist only after a crash of that agent during a kill. The next kill continues that kill, and
// SIGKILL ends a frozen process too (v6.12 kernel/signal.c complete_signal, do_freezer_trap).
const noteFrozen = Trusted + "cgroup.freeze"

// freeze freezes the group. It returns false if the kernel cannot, or if another process has frozen
// the group already. Without support for notes it freezes the group as well, because a process that
// forks faster than it is killed would survive.
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
		_ = g.RemoveNote(noteFrozen) // an error means that the kernel does not support notes
	}
	return err
}

// Thaw thaws the group if a ProcKiller left it frozen, in a process that crashed during a kill.
// Call it while no ProcKiller works on the group. A freeze by another program stays.
func (g *Group) Thaw() (thawed bool, err error) {
	// an error also on a kernel without support for notes
	if _, noted, err := g.Note(noteFrozen); err != nil || !noted {
		return false, nil
	}
	if err := g.thaw(); err != nil {
		return false, err
	}
	return true, nil
}

// group signals the processes of one group, batch by batch.
func (k *ProcKiller) group(g *Group) bool {
	if name := k.walker.Child(); k.Spare != nil && name != nil && k.Spare(name, g) {
		k.spared = true
		return true
	}
	for k.err == nil && time.Now().Before(k.deadline) {
		k.n, k.next = 0, 0
		err := k.list(g, k.collect)
		if err == nil && k.n > 0 {
			err = k.list(g, k.confirm)
		}
		full := k.n == killBatch
		signalled := k.signal() // empties the batch
		if err != nil && !errors.Is(err, ErrVanished) {
			k.err = err
		}
		if err != nil || !full || signalled == 0 {
			break
		}
	}
	return k.err == nil && !k.ended() && time.Now().Before(k.deadline)
}

func (k *ProcKiller) ended() bool { return k.Ended != nil && k.Ended.Load() }

// list visits the processes of a group. In a threaded group only cgroup.threads can be read, which
// lists each process by the ID of its leading thread.
func (k *ProcKiller) list(g *Group, visit func(int)) error {
	err := g.Procs(k.buf[:], visit)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = g.Threads(k.buf[:], visit)
	}
	return err
}

// open adds one process to the batch, unless this round has signalled the process.
func (k *ProcKiller) open(pid int) {
	switch {
	case pid == 0:
		k.foreign = true
		return
	case k.n == killBatch || pid == k.self || k.signalled[pid]:
		return
	}
	fd, err := OpenPidfd(pid)
	switch err {
	case nil:
		k.batch[k.n] = procFd{pid: pid, fd: fd}
		k.n++
	case unix.ESRCH, unix.EINVAL, unix.ENOENT: // gone, or not a thread group leader
	default:
		k.err = fmt.Errorf("open a descriptor of process %d: %w", pid, err)
	}
}

// mark confirms that a process of the batch is still in the group. The list has the same order as
// the batch, so the next entry is tried first.
func (k *ProcKiller) mark(pid int) {
	for i := range k.n {
		if p := &k.batch[(k.next+i)%k.n]; p.pid == pid {
			p.confirmed = true
			k.next = (k.next + i + 1) % k.n
			return
		}
		if k.signalled[pid] {
			return // an earlier batch had it
		}
	}
}

// signal signals the batch, empties it, and returns the number of signals.
func (k *ProcKiller) signal() (n int) {
	ended := k.ended() // after the list
	for _, p := range k.batch[:k.n] {
		if p.confirmed && !ended {
			err := unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0)
			if err != nil && err != unix.ESRCH && k.err == nil {
				k.err = fmt.Errorf("kill process %d: %w", p.pid, err)
			}
			if err == nil {
				n++
			}
			if k.signalled[p.pid] = true; !k.signalledBefore[p.pid] {
				k.fresh++
			}
		}
		unix.Close(p.fd)
	}
	k.n = 0
	return n
}
