package selfprotect

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"jettison/cgroup"
)

// ownMemory is what is protected: the agent has up to 28 MiB resident, and the kernel counts its
// page tables, sockets and files to it as well.
const ownMemory = 48 << 20

// noteName is where a cgroup's memory.min from before is kept: "BEFORE WRITTEN", in bytes. Any
// owner of a cgroup's directory can leave one; these cgroups are the agent's own and those above
// it, which are no other container's.
const noteName = "memory.min"

// Memory has the kernel leave the agent's memory alone: it raises memory.min of the cgroup that the
// agent runs in (own, below the root of fs) to 48 MiB. That counts only if each cgroup above it has
// as much, beyond what it protects already; with parents these are raised too. Beside a kubelet
// parents must be false: those cgroups are its own. Where the hierarchy is mounted with
// memory_recursiveprot (as systemd does), what a parent has and its children did not ask for
// protects all of them: without parents, nothing is lost by own's claim; with them, own claims
// exactly what was added.
//
// undo puts the former values back, unless another process has changed them meanwhile. After a
// crash they stay; they are noted on the cgroups (extended attributes), so the next start takes the
// values from before, not its own, for the former ones. Where the kernel has no such notes,
// memory.min is only raised where it is smaller, and refused says so. Each step that is refused is
// an error of its own.
func Memory(fs *cgroup.FS, own string, parents bool) (undo func() error, refused []error) {
	own = strings.Trim(path.Clean("/"+own), "/")
	var done []raised
	undo = func() error {
		var errs []error
		for i := range done {
			errs = append(errs, done[len(done)-1-i].undo(fs))
		}
		done = nil
		return errors.Join(errs...)
	}
	if own == "" {
		return undo, []error{errors.New(
			"protect own memory: the agent runs in the root cgroup, which has no memory.min")}
	}
	paths := []string{own}
	if parents {
		for at := path.Dir(own); at != "."; at = path.Dir(at) {
			paths = append(paths, at)
		}
	}
	for _, p := range paths {
		r, err := raise(fs, p, p != own)
		if err != nil {
			refused = append(refused, fmt.Errorf("protect own memory: %w", err))
		}
		if r != (raised{}) {
			done = append(done, r)
		}
	}
	return undo, refused
}

// raised is one cgroup whose memory.min was written.
type raised struct {
	path            string
	id              cgroup.ID
	before, written uint64
}

// raise raises one cgroup's memory.min; add: on top of what it had. The zero value: nothing was
// done.
func raise(fs *cgroup.FS, name string, add bool) (raised, error) {
	g, err := fs.Group(name)
	if err != nil {
		return raised{}, err
	}
	defer g.Close()
	limit, err := g.MemoryMin(make([]byte, 64))
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the memory controller is off there", err)
	}
	if err != nil || limit.Unlimited { // nothing is taken from it as it is
		return raised{}, err
	}
	r := raised{path: name, id: g.ID(), before: limit.Bytes}
	text, noted, noteErr := g.Note(noteName)
	if before, written, ok := parseNote(text); noted && ok && written == limit.Bytes {
		r.before = before // limit is what an earlier run left
	}
	r.written = max(r.before, ownMemory)
	if add {
		r.written = r.before + ownMemory
	}
	if noteErr == nil {
		noteErr = g.SetNote(noteName, fmt.Sprintf("%d %d", r.before, r.written))
	}
	if noteErr != nil { // who knows whose value it is: never add to it
		r.written = max(limit.Bytes, ownMemory)
		noteErr = fmt.Errorf("remember memory.min of /%s: %w: after a crash it would stay raised", name,
			noteErr)
	}
	if r.written == limit.Bytes && r.written == r.before {
		return raised{}, errors.Join(noteErr, g.RemoveNote(noteName))
	}
	if err := g.SetMemoryMin(r.written); err != nil {
		return raised{}, errors.Join(err, noteErr)
	}
	return r, noteErr
}

// Restore puts back the memory.min that a cgroup had before an agent raised it that has crashed
// since, and removes the note. A value that another process has written meanwhile stays. Without a
// note nothing is done.
func Restore(g *cgroup.Group) (changed bool, err error) {
	text, noted, err := g.Note(noteName)
	if err != nil || !noted {
		return false, err
	}
	limit, err := g.MemoryMin(make([]byte, 64))
	if before, written, ok := parseNote(text); err == nil && ok && !limit.Unlimited &&
		written == limit.Bytes && written != before {
		if err = g.SetMemoryMin(before); err == nil {
			changed = true
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the note says still what is to be put back
		return false, err
	}
	return changed, g.RemoveNote(noteName)
}

// parseNote reads what raise noted.
func parseNote(text string) (before, written uint64, ok bool) {
	a, b, two := strings.Cut(text, " ")
	before, okA := cgroup.Decimal([]byte(a))
	written, okB := cgroup.Decimal([]byte(b))
	return before, written, two && okA && okB
}

// undo puts back what was there before. A cgroup that is gone needs nothing.
func (r *raised) undo(fs *cgroup.FS) error {
	g, err := fs.Group(r.path)
	if errors.Is(err, cgroup.ErrVanished) {
		return nil
	}
	if err != nil {
		return err
	}
	defer g.Close()
	if g.ID() != r.id {
		return nil
	}
	now, err := g.MemoryMin(make([]byte, 64))
	if err == nil && !now.Unlimited && now.Bytes == r.written {
		err = g.SetMemoryMin(r.before)
	}
	if err == nil {
		_ = g.RemoveNote(noteName) // where there are none it fails, and then there is none
	}
	if errors.Is(err, cgroup.ErrVanished) {
		return nil
	}
	return err
}
