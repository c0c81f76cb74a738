package read

import (
	"errors"
	"runtime"
	"time"

	"jettison/cgroup"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// question is what a Reader asks its lister, and the answer. It is the lister's from ask to told,
// else the Reader's.
type question struct {
	asked time.Time
	list  bool // the roots
	roots []rootNames
	jobs  []job
}

// rootNames is what lies in one root.
type rootNames struct {
	path  string
	names []byte // of its directories, each with a 0 behind it
	err   error
}

// job is one cgroup that is to be opened, or whose processes are to be asked.
type job struct {
	k        *podGroup // the Reader's
	path     string
	asks     bool
	group    *cgroup.Group
	critical bool
	err      error
}

// lister does all that looks up a name below kubepods: it lists directories, opens the files of
// pods, and asks their processes. It has a thread of its own, or works in the caller's goroutine.
type lister struct {
	calls kernelCalls
	q     question
	ask   chan struct{} // one slot
	told  chan struct{} // likewise
	done  chan struct{} // closed: it ends
	ended chan struct{} // closed: it has; nil: it has no thread
}

// kernelCalls are those of its calls that may be held up.
type kernelCalls struct {
	list  func(root int, names []byte) ([]byte, error)
	open  func(path string) (*cgroup.Group, error)
	asks  func(path string) (critical bool)
	close func() // what they hold
}

func newLister(fs *cgroup.FS, proc *procfs.Proc, roots []string) *lister {
	l := &lister{
		calls: newDirs(fs, proc, roots).calls(), ask: make(chan struct{}, 1),
		told: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for _, path := range roots {
		l.q.roots = append(l.q.roots, rootNames{path: path, names: make([]byte, 0, 8<<10)})
	}
	return l
}

// start gives it a thread, which is there when start returns. The thread gets a priority above
// ordinary work, for a look waits for it on a node that is starved; where that is refused it works
// all the same (the Killer's threads say so).
func (l *lister) start() {
	l.ended = make(chan struct{})
	ready := make(chan struct{})
	go func() {
		defer close(l.ended)
		runtime.LockOSThread() // never unlocked: the thread ends with it, and its priority
		_, _ = cgroup.RaiseThread()
		close(ready)
		l.run()
	}()
	<-ready
}

func (l *lister) run() {
	defer l.calls.close()
	for {
		select {
		case <-l.done:
			return
		case <-l.ask:
			l.answer()
			l.told <- struct{}{}
		}
	}
}

// close ends it; the thread not longer than closePatience: a system call that never returns cannot
// be ended.
func (l *lister) close() {
	close(l.done)
	if l.ended == nil {
		l.calls.close()
		return
	}
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
	}
}

func (l *lister) answer() {
	if l.q.list {
		for i := range l.q.roots {
			r := &l.q.roots[i]
			r.names, r.err = l.calls.list(i, r.names[:0])
		}
	}
	for i := range l.q.jobs {
		j := &l.q.jobs[i]
		if j.asks {
			j.critical = l.calls.asks(j.path)
		} else {
			j.group, j.err = l.calls.open(j.path)
		}
		select {
		case <-l.done: // what it was opened with may be closed
			return
		default:
		}
	}
}

// dirs are the directories of the roots, as the kernel has them.
type dirs struct {
	fs    *cgroup.FS
	proc  *procfs.Proc
	roots []rootDir
	buf   []byte
	names []byte
	add   func(name []byte)
}

type rootDir struct {
	path string
	dir  *cgroup.Dir // nil: not open
}

func newDirs(fs *cgroup.FS, proc *procfs.Proc, roots []string) *dirs {
	d := &dirs{fs: fs, proc: proc, buf: make([]byte, 32<<10)}
	for _, path := range roots {
		d.roots = append(d.roots, rootDir{path: path})
	}
	d.add = func(name []byte) { d.names = append(append(d.names, name...), 0) }
	return d
}

func (d *dirs) calls() kernelCalls { return kernelCalls{d.list, d.open, d.asks, d.close} }

func (d *dirs) close() {
	for i := range d.roots {
		if r := &d.roots[i]; r.dir != nil {
			r.dir.Close()
			r.dir = nil
		}
	}
}

// list appends the names in a root. One that does not exist has nothing in it.
func (d *dirs) list(root int, names []byte) ([]byte, error) {
	r := &d.roots[root]
	for try := 0; ; try++ {
		if r.dir == nil {
			dir, err := d.fs.OpenDir(r.path)
			if errors.Is(err, cgroup.ErrVanished) {
				return names, nil
			}
			if err != nil {
				return names, err
			}
			r.dir = dir
		}
		d.names = names
		err := r.dir.Children(d.buf, d.add)
		if err == nil || !errors.Is(err, cgroup.ErrVanished) {
			return d.names, err
		}
		// Removed, and perhaps made anew under the same path.
		r.dir.Close()
		r.dir = nil
		if try > 0 {
			return names, nil
		}
	}
}

// open opens a pod's cgroup with the files that looks at memory read, so that those look up
// nothing.
func (d *dirs) open(path string) (*cgroup.Group, error) {
	g, err := d.fs.Group(path)
	if err == nil {
		g.OpenKept()
	}
	return g, err
}

// asks reports whether a process of a pod has said that it is critical: an oom_score_adj of -997.
// (The sandbox's own process has -998.)
func (d *dirs) asks(path string) (critical bool) {
	processes(d.fs, path, d.buf, func(pid int) {
		if critical {
			return
		}
		adj, err := d.proc.OOMScoreAdj(pid)
		critical = err == nil && adj == podindex.OOMScoreAdjGuaranteed
	})
	return critical
}
