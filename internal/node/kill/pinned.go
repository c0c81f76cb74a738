package kill

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// heldFunc is Options.Held.
type heldFunc = func(pod *stats.PodStats, out *cgroup.Group) (file int, ok bool)

// pinnedGroup holds five handles of the victim's cgroup, one for each goroutine that uses it. Pin
// opens them, and the last release closes them. known, outside and outsideIDs do not change after
// Pin.
type pinnedGroup struct {
	known   bool   // false: no cgroup of the pod was found
	outside []part // containers outside the pod's cgroup; Close closes them
	// IDs of those, and of the ones that had exited
	outsideIDs []string
	wait       cgroup.Group // for the caller that waits
	kill       cgroup.Group // writes cgroup.kill; guarded by killFile.mu
	each       cgroup.Group // kills process by process; guarded by singleKill.mu, except for its directory
	reap       cgroup.Group // for the thread that frees memory
	stat       cgroup.Group // for the worker that reads the CPU time, one at a time
}

// open opens the pod's cgroup, or duplicates the handle that held provides. It returns the
// descriptor of cgroup.kill that held provides, or -1, also together with an error.
func (p *pinnedGroup) open(fs *cgroup.FS, pod *stats.PodStats, held heldFunc) (file int,
	err error) {
	for _, g := range []*cgroup.Group{&p.wait, &p.kill, &p.each, &p.reap, &p.stat} {
		g.MarkClosed()
	}
	file = -1
	provided := false
	if held != nil {
		file, provided = held(pod, &p.wait)
	}
	if !provided {
		if err := fs.GroupInto(pod.Cgroup, &p.wait); err != nil {
			return file, err
		}
	}
	if stats.CgroupID(p.wait.ID()) != pod.CgroupID && pod.CgroupID != (stats.CgroupID{}) {
		return file, fmt.Errorf("cgroup /%s was replaced", pod.Cgroup)
	}
	for _, g := range []*cgroup.Group{&p.kill, &p.each, &p.reap, &p.stat} {
		if err := p.wait.DupInto(g); err != nil {
			return file, err
		}
	}
	return file, nil
}

func (p *pinnedGroup) close() {
	for _, g := range []*cgroup.Group{&p.wait, &p.kill, &p.each, &p.reap, &p.stat} {
		g.Close()
	}
}

// Bounds of the pidfds opened before the kill. Processes without one are searched after the kill.
const (
	maxPidfds  = 64
	pidfdLimit = time.Millisecond
)

// process is one process of a victim.
type process struct {
	pid, fd int
	// it was still listed after its pidfd was opened, so the pid had not been reused
	confirmed atomic.Bool
}

// pinnedProcesses are the processes with pidfds opened before the kill. One thread lists the
// victim's processes and adds them, while any thread may read; count can grow between two reads.
// The last release closes the pidfds.
type pinnedProcesses struct {
	of [maxPidfds]process
	n  atomic.Int32
}

// count returns the number of open pidfds.
func (p *pinnedProcesses) count() int { return int(p.n.Load()) }

// at returns process i, with i < count.
func (p *pinnedProcesses) at(i int) *process { return &p.of[i] }

// full reports whether the limit is reached.
func (p *pinnedProcesses) full() bool { return p.count() == maxPidfds }

// add adds a process and its open pidfd. The list must not be full.
func (p *pinnedProcesses) add(pid, fd int) {
	n := p.count()
	p.of[n].pid, p.of[n].fd = pid, fd
	p.n.Store(int32(n + 1))
}

// mark confirms that a process is still listed, and returns the index expected next. The kernel
// lists processes in a stable order, so mark tries the expected index first.
func (p *pinnedProcesses) mark(pid, expected int) (next int) {
	n := p.count()
	for i := range n {
		if one := &p.of[(expected+i)%n]; one.pid == pid {
			one.confirmed.Store(true)
			return (expected + i + 1) % n
		}
	}
	return expected
}

// signal sends SIGKILL to the pinned processes and returns the number signalled. It takes no lock
// that another process holds while it allocates.
func (p *pinnedProcesses) signal() (n int) {
	for i := range p.count() {
		one := &p.of[i]
		if one.confirmed.Load() && unix.PidfdSendSignal(one.fd, unix.SIGKILL, nil, 0) == nil {
			n++
		}
	}
	return n
}

func (p *pinnedProcesses) close() {
	for i := range p.count() {
		unix.Close(p.of[i].fd)
	}
	p.n.Store(0)
}
