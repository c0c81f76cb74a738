package read

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cgroup"
	"jettison/stats"
)

// Listing a cgroup's directory takes its lock, which whoever makes or removes a cgroup in it holds while he allocates; to look a name up
// takes that lock too, and the rwsem of the whole hierarchy, under which the kernel makes inodes (v6.12 fs/readdir.c iterate_dir,
// fs/kernfs/dir.c kernfs_iop_lookup, kernfs_iop_mkdir). Under pressure that lasts as long as reclaim does. So a look that is made many
// times a second has others list and open, and waits for them no longer than its limit. What it reads itself are files that are open: that
// takes no lock which anybody holds while he allocates.

// beside is who lists and opens for a Reader. It cannot reach what belongs to that.
type beside struct {
	limit   time.Duration // of a look's waiting, in all
	listers []*lister     // of the roots, in their order
	opener  *opener
	timer   *time.Timer
	over    bool // the limit of this look
	done    chan struct{}
	all     sync.WaitGroup
}

// lister lists one root. Between ask and told its fields are its own, else they are the Reader's.
type lister struct {
	path  string
	list  func(*lister) error
	ask   chan struct{} // one slot
	told  chan struct{} // likewise
	asked bool          // the Reader's: it has not told since
	late  error         // the Reader's: that it has not

	fs    *cgroup.FS
	dir   *cgroup.Dir // nil: not open
	buf   []byte
	names []byte // of its directories, each with a 0 behind it
	add   func(name []byte)
	err   error
}

func newLister(fs *cgroup.FS, path string, limit time.Duration) *lister {
	l := &lister{
		path: path, list: (*lister).read, fs: fs, ask: make(chan struct{}, 1), told: make(chan struct{}, 1), buf: make([]byte, 8<<10),
		names: make([]byte, 0, 8<<10),
		late: fmt.Errorf("list cgroup /%s: no answer within %v: the pods that were there before count (the kernel holds its lock while "+
			"memory is short)", path, limit),
	}
	l.add = func(name []byte) { l.names = append(append(l.names, name...), 0) }
	return l
}

func (l *lister) run(done <-chan struct{}) {
	defer func() {
		if l.dir != nil {
			l.dir.Close()
		}
	}()
	for {
		select {
		case <-done:
			return
		case <-l.ask:
			l.err = l.list(l)
			l.told <- struct{}{}
		}
	}
}

// read lists the directory. One that does not exist has nothing in it.
func (l *lister) read() error {
	for try := 0; ; try++ {
		l.names = l.names[:0]
		if l.dir == nil {
			dir, err := l.fs.OpenDir(l.path)
			if errors.Is(err, cgroup.ErrVanished) {
				return nil
			}
			if err != nil {
				return err
			}
			l.dir = dir
		}
		err := l.dir.Children(l.buf, l.add)
		if err == nil || !errors.Is(err, cgroup.ErrVanished) {
			return err
		}
		// Removed, and perhaps made anew under the same path.
		l.dir.Close()
		l.dir = nil
		if try > 0 {
			l.names = l.names[:0]
			return nil
		}
	}
}

// opening is one cgroup that is being opened, or whose processes are asked. Who changes the state from begun owns the group.
type opening struct {
	path     string
	asks     bool // its processes are to be asked
	state    atomic.Int32
	group    *cgroup.Group
	critical bool
	err      error
}

const (
	begun int32 = iota
	opened
	abandoned
)

// opener opens cgroups, one after the other.
type opener struct {
	open func(path string) (*cgroup.Group, error)
	asks func(path string) (critical bool)
	wake chan struct{} // one slot
	told chan struct{} // likewise: one more is open

	mu    sync.Mutex
	queue []*opening // mu guards it
}

func (o *opener) begin(path string, asks bool) *opening {
	one := &opening{path: path, asks: asks}
	o.mu.Lock()
	o.queue = append(o.queue, one)
	o.mu.Unlock()
	signal(o.wake)
	return one
}

func signal(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

func (o *opener) next() *opening {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return nil
	}
	one := o.queue[0]
	o.queue = o.queue[1:]
	return one
}

func (o *opener) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-o.wake:
		}
		for one := o.next(); one != nil; one = o.next() {
			if one.state.Load() == abandoned {
				continue
			}
			if one.asks {
				one.critical = o.asks(one.path)
			} else {
				one.group, one.err = o.open(one.path)
			}
			if !one.state.CompareAndSwap(begun, opened) && one.group != nil {
				one.group.Close()
			}
			signal(o.told)
		}
	}
}

// abandon gives up an opening, whatever came of it.
func (one *opening) abandon() {
	if one != nil && !one.state.CompareAndSwap(begun, abandoned) && one.group != nil {
		one.group.Close()
		one.group = nil
	}
}

// openWhole opens a cgroup with the files that looks read.
func openWhole(fs *cgroup.FS) func(path string) (*cgroup.Group, error) {
	return func(path string) (*cgroup.Group, error) {
		g, err := fs.Group(path)
		if err == nil {
			g.OpenKept()
		}
		return g, err
	}
}

var errLateOpen = errors.New("pods that are new are not measured yet: opening their cgroups takes longer than a look may wait " +
	"(the kernel holds their lock while memory is short)")

// errNotOpen: a pod's cgroup is not open yet. It is not measured in this look.
var errNotOpen = errors.New("its cgroup is not open yet")

// Beside has directories listed and cgroups opened beside the caller's goroutine from now on: a look waits for that no longer than limit in
// all. Then the pods that were there before count, and a pod that is not open yet is in the Summary without readings. What is known already
// is opened now. Close ends it.
func (c *Reader) Beside(limit time.Duration) {
	s, fs, proc, buf := c.pods, c.fs, c.proc, make([]byte, 8<<10)
	asks := func(path string) bool { return podCritical(fs, proc, path, buf) }
	b := &beside{
		limit: limit, timer: time.NewTimer(time.Hour), done: make(chan struct{}),
		opener: &opener{open: openWhole(s.fs), asks: asks, wake: make(chan struct{}, 1), told: make(chan struct{}, 1)},
	}
	b.timer.Stop()
	for _, r := range s.roots {
		l := newLister(s.fs, r.path, limit)
		b.listers = append(b.listers, l)
		b.all.Go(func() { l.run(b.done) })
	}
	b.all.Go(func() { b.opener.run(b.done) })
	for _, k := range s.order {
		if k.group != nil {
			k.group.OpenKept()
		}
	}
	s.beside = b
}

// close ends it, but for what the kernel holds.
func (b *beside) close() {
	close(b.done)
	ended := make(chan struct{})
	go func() { b.all.Wait(); close(ended) }()
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// begin has all roots listed.
func (b *beside) begin() {
	b.over = false
	b.timer.Reset(b.limit)
	for _, l := range b.listers {
		if !l.asked {
			l.asked = true
			l.ask <- struct{}{}
		}
	}
}

// wait waits for a channel, no longer than what is left of the look's limit.
func (b *beside) wait(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
	}
	if b.over {
		return false
	}
	select {
	case <-c:
		return true
	case <-b.timer.C:
		b.over = true
		return false
	}
}

// take goes through the i-th root's answer; the error says why there is none.
func (b *beside) take(i int, visit func(name []byte)) error {
	l := b.listers[i]
	if !b.wait(l.told) {
		return l.late
	}
	l.asked = false
	if l.err != nil {
		return l.err
	}
	for rest := l.names; len(rest) > 0; {
		end := 0
		for rest[end] != 0 {
			end++
		}
		visit(rest[:end])
		rest = rest[end+1:]
	}
	return nil
}

// openAll has those opened that are not, and waits for them.
func (b *beside) openAll(order []*podGroup) error {
	waiting := 0
	for _, k := range order {
		if k.group == nil && k.Path != "" {
			if k.opening == nil {
				k.opening = b.opener.begin(k.Path, false)
			}
			waiting++
		}
	}
	for waiting > 0 {
		waiting = 0
		for _, k := range order {
			if k.group == nil && k.opening != nil && k.opening.state.Load() == begun {
				waiting++
			}
		}
		if waiting > 0 && !b.wait(b.opener.told) {
			return errLateOpen
		}
	}
	return nil
}

// critical reports whether a process of a pod has said that it is, when they were asked last, and has them asked again.
func (b *beside) critical(k *podGroup) bool {
	if one := k.asking; one != nil && one.state.Load() == opened {
		k.critical, k.answered, k.asking = one.critical, true, nil
	}
	if k.asking == nil {
		k.asking = b.opener.begin(k.Path, true)
	}
	return k.critical || !k.answered
}

// taken is the group of a pod, if it was opened.
func (k *podGroup) taken() (*cgroup.Group, error) {
	one := k.opening
	if one == nil || one.state.Load() == begun {
		return nil, errNotOpen
	}
	k.opening = nil
	return one.group, one.err
}

// Held makes out, zero or closed, a second handle of a pod's cgroup that is open, as long as that is there, and file one of its cgroup.kill
// (-1: that is not open). Close both. It looks up no name and allocates nothing. ok is false if the very cgroup is not open.
func (c *Reader) Held(p *stats.PodStats, out *cgroup.Group) (file int, ok bool) {
	for _, k := range c.pods.order {
		if k.group == nil || k.Path != p.Cgroup || stats.CgroupID(k.group.ID()) != p.CgroupID {
			continue
		}
		if _, err := k.group.Events(c.buf); err != nil || k.group.DupInto(out) != nil {
			return -1, false
		}
		return k.group.DupKill(), true
	}
	return -1, false
}
