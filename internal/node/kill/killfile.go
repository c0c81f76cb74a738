package kill

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
)

// killBuffer is the size of the buffer of a write, which may list the victim's child groups.
const killBuffer = 2048

// killFile is the victim's cgroup.kill, open for writing. mu guards fd, err and child between Pin
// and the last release; group does not change. Only Pin calls adopt and open. Only the last
// release, or a Pin that fails, calls close.
type killFile struct {
	mu    sync.Mutex
	group *cgroup.Group // pinnedGroup.kill
	// monitors are spared. Any thread may use it.
	monitors monitors
	child    cgroup.Group // the child group that is being killed
	fd       int          // -1: not open, err holds the reason
	err      error
}

func (f *killFile) init(g *cgroup.Group) { f.group, f.fd = g, -1 }

// adopt sets a descriptor that is already open; -1 means none.
func (f *killFile) adopt(fd int) { f.fd, f.err = fd, nil }

// open opens the file, unless adopt set a descriptor.
func (f *killFile) open() {
	if f.fd < 0 {
		f.fd, f.err = f.group.OpenKill()
	}
}

func (f *killFile) close() {
	if f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
	}
}

// busy reports whether a thread is writing the file.
func (f *killFile) busy() bool {
	if !f.mu.TryLock() {
		return true
	}
	f.mu.Unlock()
	return false
}

// write writes the file, and first opens it if an earlier open failed. A cgroup that has vanished
// is no error. f.mu is held.
func (f *killFile) write() error {
	if f.err != nil { // the agent may have run out of descriptors only temporarily
		f.fd, f.err = f.group.OpenKill()
	}
	err := f.err
	if err == nil {
		err = f.group.WriteKill(f.fd)
	}
	if errors.Is(err, cgroup.ErrVanished) {
		err = nil
	}
	return err
}

// isEmpty reports whether the victim's cgroup has no process or is gone. f.mu is held.
func (f *killFile) isEmpty(buf []byte) bool {
	e, err := f.group.Events(buf)
	return errors.Is(err, cgroup.ErrVanished) || err == nil && !e.Populated
}

// eachLimit bounds one round of a kill process by process.
const eachLimit = 500 * time.Millisecond

// singleKill kills the victim's processes one by one. mu admits one thread at a time; group and
// limit do not change after Pin.
type singleKill struct {
	mu    sync.Mutex
	group *cgroup.Group      // pinnedGroup.each
	limit time.Duration      // eachLimit
	again *cgroup.ProcKiller // for further rounds; nil: none yet; guarded by mu
}

func (s *singleKill) init(g *cgroup.Group) { s.group, s.limit = g, eachLimit }

// kill kills the processes in one round and returns their number. s.mu is held.
func (s *singleKill) kill(by *cgroup.ProcKiller) (n int, err error) {
	return by.Kill(s.group, s.limit)
}
