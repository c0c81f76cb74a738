package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Watch selects the events of a cgroup that cause a wake.
type Watch struct {
	// of MemoryEventsChanged, MemoryEventsLocalChanged, CgroupEventsChanged, PIDsEventsChanged
	Events   WatchEvents
	Triggers []Trigger // only for a long-lived cgroup: see Trigger
}

// eventFiles are the files that signal changes, by event (cgroup_file_notify; v6.12
// mm/memcontrol.c, kernel/cgroup/pids.c).
var eventFiles = [...]struct {
	kind WatchEvents
	name string
}{
	{MemoryEventsChanged, "memory.events"}, {MemoryEventsLocalChanged, "memory.events.local"},
	{CgroupEventsChanged, "cgroup.events"}, {PIDsEventsChanged, "pids.events"},
}

// nodeKey is the key of AddNode's watch.
const nodeKey = ""

// Add watches a cgroup under a key, such as a pod's UID, and returns the events that are watched.
// Files that the cgroup lacks (its controller is disabled, the kernel is old) and refused files are
// left out. Add replaces a previous watch under the key, but does nothing if that watch is of the
// same cgroup. The caller may close the group afterwards. ErrVanished: the cgroup was removed
// meanwhile and is not watched.
func (w *Watcher) Add(key string, g *Group, watch Watch) (WatchEvents, error) {
	if key == nodeKey {
		return 0, fmt.Errorf("watch cgroup %s: no key", g.file(""))
	}
	if got, ok := w.watching(key, g.id); ok {
		return got, nil
	}
	var opened []opening
	for _, f := range eventFiles {
		if watch.Events&f.kind == 0 {
			continue
		}
		o, err := w.openEvents(g, f.name)
		if err == nil {
			o.kind = f.kind
			opened = append(opened, o)
		} else if err = w.openError("watch", err); err != nil {
			closeOpened(opened)
			return 0, err
		}
	}
	for _, t := range watch.Triggers {
		o, err := w.openTrigger(t, func() (int, error) {
			return g.openFile(t.Resource.String()+
				".pressure", unix.O_RDWR|unix.O_NONBLOCK)
		})
		if err == nil {
			opened = append(opened, o)
		} else if err = w.openError("set a trigger on", err); err != nil {
			closeOpened(opened)
			return 0, err
		}
	}
	return w.put(&watched{key: key, id: g.id, isGroup: true}, opened)
}

// AddNode watches the node's pressure in PROC/pressure, under the key "".
func (w *Watcher) AddNode(procMount string, triggers []Trigger) (WatchEvents, error) {
	var opened []opening
	for _, t := range triggers {
		path := filepath.Join(procMount, "pressure", t.Resource.String())
		o, err := w.openTrigger(t, func() (int, error) {
			fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return -1, fmt.Errorf("open %s: %w", path, err)
			}
			return fd, nil
		})
		if err == nil {
			opened = append(opened, o)
			continue
		}
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrPressureOff) {
			w.addRefusals(fmt.Errorf("no pressure triggers: %w: the kernel is built without PSI, or booted with psi=0", err))
		} else if err = w.openError("set a trigger on", err); err != nil {
			closeOpened(opened)
			return 0, err
		}
	}
	return w.put(&watched{key: nodeKey}, opened)
}

// Watches reports whether the key watches the cgroup with this ID.
func (w *Watcher) Watches(key string, id ID) bool {
	_, ok := w.watching(key, id)
	return ok
}

func (w *Watcher) watching(key string, id ID) (got WatchEvents, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.groups[key]
	if of == nil || !of.isGroup || of.id != id {
		return 0, false
	}
	return w.kinds(of), true
}

func (w *Watcher) kinds(of *watched) (got WatchEvents) {
	for _, number := range of.sources {
		got |= w.sources[number].kind
	}
	return got
}

// Remove ends the watch of a key. The next Wake may still contain earlier events of the key.
// Removing a trigger of an existing cgroup takes some 10 ms.
func (w *Watcher) Remove(key string) {
	var dead []int
	w.mu.Lock()
	if of := w.groups[key]; of != nil {
		dead = w.drop(of, dead)
		delete(w.groups, key)
	}
	w.mu.Unlock()
	closeFiles(dead)
}

// Keep ends the watch of each cgroup with a key for which wanted returns false. The kernel sends no
// event when a watched cgroup is removed, so the loop that lists the cgroups calls Keep.
func (w *Watcher) Keep(wanted func(key string) bool) {
	var dead []int
	w.mu.Lock()
	for key, of := range w.groups {
		if of.isGroup && !wanted(key) {
			dead = w.drop(of, dead)
			delete(w.groups, key)
		}
	}
	w.mu.Unlock()
	closeFiles(dead)
}

// opening is a descriptor to be added to the epoll.
type opening struct {
	fd     int
	kind   WatchEvents
	events uint32
	rearm  bool
}

// closeOpened closes descriptors that were not added.
func closeOpened(opened []opening) {
	for _, o := range opened {
		unix.Close(o.fd)
	}
}

// openEvents opens an event file and reads it once, because the kernel reports the file as changed
// before the first read (kernfs: of->event starts behind).
func (w *Watcher) openEvents(g *Group, name string) (opening, error) {
	fd, err := g.openFile(name, unix.O_RDONLY)
	if err != nil {
		return opening{}, err
	}
	var buf [512]byte
	if _, err := g.pread(fd, name, buf[:], 0); err != nil {
		unix.Close(fd)
		return opening{}, err
	}
	return opening{fd: fd, events: unix.EPOLLPRI, rearm: true}, nil
}

// openError classifies the error of opening one source. nil: continue without the source (reported
// as a refusal, unless the cgroup lacks the file). ErrVanished: the whole cgroup is gone. Any other
// error: the call is invalid.
func (w *Watcher) openError(verb string, err error) error {
	switch {
	case errors.Is(err, ErrVanished), errors.Is(err, errTrigger):
		return err
	case errors.Is(err, os.ErrNotExist), errors.Is(err, ErrPressureOff):
		return nil
	case exhausted(err):
		w.addRefusals(fmt.Errorf("cannot %s all cgroups: %w: raise the limit of open files", verb,
			causeOf(err)))
		return nil
	}
	w.addRefusals(fmt.Errorf("cannot %s all cgroups: %w", verb, causeOf(err)))
	return nil
}

// causeOf returns an error without the path, so that the same error of several cgroups is reported
// once.
func causeOf(err error) error {
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}

// put adds descriptors to the epoll and replaces the watch under the key.
func (w *Watcher) put(of *watched, opened []opening) (got WatchEvents, err error) {
	var refused []error
	var dead []int
	w.mu.Lock()
	if old := w.groups[of.key]; old != nil {
		dead = w.drop(old, dead)
		delete(w.groups, of.key)
	}
	for _, o := range opened {
		switch {
		case err != nil:
		case w.closed:
			err = fmt.Errorf("watch %q: %w", of.key, os.ErrClosed)
		case w.files >= w.fileLimit:
			refused = append(refused, fmt.Errorf("cannot watch all cgroups: more than %d files", w.fileLimit))
		default:
			var addErr error
			if addErr = w.addSource(of, o); addErr == nil {
				got |= o.kind
				continue
			}
			if exhausted(addErr) {
				refused = append(refused,
					fmt.Errorf("cannot watch all cgroups: add to epoll: %w: raise fs.epoll.max_user_watches",
						addErr))
			} else {
				err = fmt.Errorf("watch %q: add to epoll: %w", of.key, addErr)
			}
		}
		dead = append(dead, o.fd)
	}
	switch {
	case err != nil:
		dead = w.drop(of, dead)
	case len(of.sources) > 0 || of.isGroup && !w.closed:
		w.groups[of.key] = of // do not retry a cgroup without sources at every look
	}
	w.mu.Unlock()
	closeFiles(dead)
	w.addRefusals(refused...)
	if err != nil {
		return 0, err
	}
	return got, nil
}

// addSource adds one descriptor. w.mu is held.
func (w *Watcher) addSource(of *watched, o opening) error {
	var number int32
	if n := len(w.free); n > 0 {
		number = w.free[n-1]
	} else {
		number = int32(len(w.sources))
	}
	generation := int32(0)
	if int(number) < len(w.sources) {
		generation = w.sources[number].generation + 1
	}
	event := unix.EpollEvent{Events: o.events, Fd: number, Pad: generation}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, o.fd, &event); err != nil {
		return err
	}
	s := source{fd: o.fd, kind: o.kind, generation: generation, of: of, rearm: o.rearm}
	if int(number) < len(w.sources) {
		w.sources[number] = s
		w.free = w.free[:len(w.free)-1]
	} else {
		w.sources = append(w.sources, s)
	}
	of.sources = append(of.sources, number)
	w.files++
	return nil
}

// drop ends all sources of a key and adds their descriptors to dead, for closing. w.mu is held.
func (w *Watcher) drop(of *watched, dead []int) []int {
	for len(of.sources) > 0 {
		dead = w.dropSource(of.sources[len(of.sources)-1], dead)
	}
	return dead
}

// dropSource removes one descriptor from the epoll and from the sources, so that it is not read any
// more. w.mu is held.
func (w *Watcher) dropSource(number int32, dead []int) []int {
	s := &w.sources[number]
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, s.fd, nil)
	dead = append(dead, s.fd)
	of := s.of
	for i, n := range of.sources {
		if n == number {
			of.sources = append(of.sources[:i], of.sources[i+1:]...)
			break
		}
	}
	s.fd, s.of = -1, nil
	w.free = append(w.free, number)
	w.files--
	return dead
}
