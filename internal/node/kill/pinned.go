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

// pinnedGroup is the victim's cgroup four times, for each has a goroutine of its own. Pin opens it,
// and the last release closes it. known does not change after Pin.
type pinnedGroup struct {
	known bool         // false: none was found, only the runtime can kill it
	wait  cgroup.Group // for the caller that waits
	kill  cgroup.Group // to write cgroup.kill: killFile.mu guards it
	each  cgroup.Group // to kill process by process: singleKill.mu guards it, but for its directory
	reap  cgroup.Group // for the thread that frees its memory
}

// open opens the pod's cgroup, or duplicates the handle that held has. file is what held has open
// of its cgroup.kill, or -1. It comes with an error, too.
func (p *pinnedGroup) open(fs *cgroup.FS, pod *stats.PodStats, held heldFunc) (file int,
	err error) {
	for _, g := range []*cgroup.Group{&p.wait, &p.kill, &p.each, &p.reap} {
		g.Forget()
	}
	file = -1
	has := false
	if held != nil {
		file, has = held(pod, &p.wait)
	}
	if !has {
		if err := fs.GroupInto(pod.Cgroup, &p.wait); err != nil {
			return file, err
		}
	}
	if stats.CgroupID(p.wait.ID()) != pod.CgroupID && pod.CgroupID != (stats.CgroupID{}) {
		return file, fmt.Errorf("cgroup /%s is another one now", pod.Cgroup)
	}
	for _, g := range []*cgroup.Group{&p.kill, &p.each, &p.reap} {
		if err := p.wait.DupInto(g); err != nil {
			return file, err
		}
	}
	return file, nil
}

func (p *pinnedGroup) close() {
	for _, g := range []*cgroup.Group{&p.wait, &p.kill, &p.each, &p.reap} {
		g.Close()
	}
}

// Bounds of the pidfds that are opened before the kill. A process without one is found after it.
const (
	maxPidfds  = 64
	pidfdLimit = time.Millisecond
)

// process is one process of a victim.
type process struct {
	pid, fd int
	// it was still listed once its descriptor was open: the number was not another process's by then
	here atomic.Bool
}

// pinnedProcesses are the processes whose pidfds were opened before the kill. The thread that lists
// the victim's processes adds to them; any thread reads them meanwhile, and there may be more of
// them each time it looks. The last release closes them.
type pinnedProcesses struct {
	of [maxPidfds]process
	n  atomic.Int32
}

// count is how many of them are open.
func (p *pinnedProcesses) count() int { return int(p.n.Load()) }

// at returns one of the first count.
func (p *pinnedProcesses) at(i int) *process { return &p.of[i] }

// full reports whether no more can be added.
func (p *pinnedProcesses) full() bool { return p.count() == maxPidfds }

// add takes a process whose descriptor was opened. There is room for it.
func (p *pinnedProcesses) add(pid, fd int) {
	n := p.count()
	p.of[n].pid, p.of[n].fd = pid, fd
	p.n.Store(int32(n + 1))
}

// mark notes that a process is still listed, and returns which is expected next. The list has the
// order of the one before, so the one that is expected is tried first.
func (p *pinnedProcesses) mark(pid, expected int) (next int) {
	n := p.count()
	for i := range n {
		if one := &p.of[(expected+i)%n]; one.pid == pid {
			one.here.Store(true)
			return (expected + i + 1) % n
		}
	}
	return expected
}

// signal kills the processes that were pinned. That takes no lock which anybody holds while he
// allocates.
func (p *pinnedProcesses) signal() (n int) {
	for i := range p.count() {
		if one := &p.of[i]; one.here.Load() && unix.PidfdSendSignal(one.fd, unix.SIGKILL, nil, 0) == nil {
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
