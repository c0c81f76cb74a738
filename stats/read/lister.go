package read

import (
	"errors"
	"runtime"
	"time"

	"jettison/cgroup"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// request is a Reader's request to its lister, and carries the answer back. It belongs to the
// lister from the send on requests until the send on answers, otherwise to the Reader.
type request struct {
	sentAt time.Time
	list   bool // list the roots
	roots  []rootNames
	jobs   []job
}

// rootNames lists the directories in one root.
type rootNames struct {
	path  string
	names []byte // names of the directories, each followed by a 0 byte
	err   error
}

// job is the opening of one cgroup, or the check of its processes.
type job struct {
	pod      *podGroup // the Reader's
	path     string
	check    bool
	group    *cgroup.Group
	critical bool
	err      error
}

// lister does all name lookups below kubepods: it lists directories, opens the files of pods,
// and checks their processes. It runs on its own thread, or in the caller's goroutine.
type lister struct {
	calls    kernelCalls
	req      request
	requests chan struct{} // one slot
	answers  chan struct{} // one slot
	done     chan struct{} // closed to end the thread
	ended    chan struct{} // closed when the thread has ended; nil: no thread
}

// kernelCalls are the lister's calls that the kernel may block.
type kernelCalls struct {
	list          func(root int, names []byte) ([]byte, error)
	open          func(path string) (*cgroup.Group, error)
	checkCritical func(path string) (critical bool)
	close         func() // closes the descriptors of the other calls
}

func newLister(fs *cgroup.FS, proc *procfs.Proc, roots []string) *lister {
	l := &lister{
		calls: newDirs(fs, proc, roots).calls(), requests: make(chan struct{}, 1),
		answers: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for _, path := range roots {
		l.req.roots = append(l.req.roots, rootNames{path: path, names: make([]byte, 0, 8<<10)})
	}
	return l
}

// start starts the thread and returns once it runs. The thread gets a priority above ordinary work,
// because a look waits for it on a starved node. If the kernel refuses that priority, the thread
// works with ordinary priority (the Killer's threads report the refusal).
func (l *lister) start() {
	l.ended = make(chan struct{})
	ready := make(chan struct{})
	go func() {
		defer close(l.ended)
		runtime.LockOSThread() // never unlocked: thread and priority end with the goroutine
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
		case <-l.requests:
			l.answer()
			l.answers <- struct{}{}
		}
	}
}

// close ends the lister and waits for the thread, at most closeTimeout, because a blocked system
// call cannot be ended.
func (l *lister) close() {
	close(l.done)
	if l.ended == nil {
		l.calls.close()
		return
	}
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
	}
}

func (l *lister) answer() {
	if l.req.list {
		for i := range l.req.roots {
			r := &l.req.roots[i]
			r.names, r.err = l.calls.list(i, r.names[:0])
		}
	}
	for i := range l.req.jobs {
		j := &l.req.jobs[i]
		if j.check {
			j.critical = l.calls.checkCritical(j.path)
		} else {
			j.group, j.err = l.calls.open(j.path)
		}
		select {
		case <-l.done: // the descriptors that open uses may be closed
			return
		default:
		}
	}
}

// dirs holds the directories of the roots in the kernel's hierarchy.
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

func (d *dirs) calls() kernelCalls { return kernelCalls{d.list, d.open, d.checkCritical, d.close} }

func (d *dirs) close() {
	for i := range d.roots {
		if r := &d.roots[i]; r.dir != nil {
			r.dir.Close()
			r.dir = nil
		}
	}
}

// list appends the names in a root. A root that does not exist is empty.
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
		// The root was removed, and perhaps created again under the same path.
		r.dir.Close()
		r.dir = nil
		if try > 0 {
			return names, nil
		}
	}
}

// open opens a pod's cgroup with the files that memory looks read, so that the looks need no
// name lookups.
func (d *dirs) open(path string) (*cgroup.Group, error) {
	g, err := d.fs.Group(path)
	if err == nil {
		g.OpenKept()
	}
	return g, err
}

// checkCritical reports whether a process of a pod has an oom_score_adj of -997, the value of
// critical pods. (The sandbox's own process has -998.)
func (d *dirs) checkCritical(path string) (critical bool) {
	processes(d.fs, path, d.buf, func(pid int) {
		if critical {
			return
		}
		adj, err := d.proc.OOMScoreAdj(pid)
		critical = err == nil && adj == podindex.OOMScoreAdjGuaranteed
	})
	return critical
}
