package selfprotect

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"jettison/cgroup"
)

// ownMemory is the protected amount: the agent has up to 28 MiB resident, and the kernel also
// charges its page tables, sockets and files.
const ownMemory = 48 << 20

// noteName is the note with a cgroup's former memory.min: "BEFORE WRITTEN", in bytes. The owner of
// a cgroup's directory can write it, but these cgroups are the agent's own and its ancestors, which
// belong to no other container.
const noteName = "memory.min"

// Memory protects the agent's memory from reclaim: it raises memory.min of the agent's cgroup (own,
// below the root of fs) to 48 MiB. The kernel honors that only if each ancestor has as much in
// addition to its other protection; with parents set, Memory raises the ancestors too. On a node
// with a kubelet parents must be false, because the kubelet owns those cgroups. If the hierarchy is
// mounted with memory_recursiveprot (as systemd does), unclaimed protection of a parent covers all
// its children: without parents, own's claim takes nothing from them; with parents, own claims
// exactly the added amount.
//
// undo restores the former values, unless another process has changed them. After a crash the
// raised values stay. The former values are noted on the cgroups (extended attributes), so that the
// next start does not treat its own values as the former ones. If the kernel does not support
// notes, memory.min is raised only where it is smaller, and refused contains the error. refused
// contains one error for each failed step.
func Memory(fs *cgroup.FS, own string, parents bool) (undo func() error, refused []error) {
	own = strings.Trim(path.Clean("/"+own), "/")
	var done []raisedCgroup
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
		if r != (raisedCgroup{}) {
			done = append(done, r)
		}
	}
	return undo, refused
}

// raisedCgroup is a cgroup with a raised memory.min.
type raisedCgroup struct {
	path            string
	id              cgroup.ID
	before, written uint64
}

// raise raises one cgroup's memory.min; with add set, on top of its former value. It returns the
// zero value if it changed nothing.
func raise(fs *cgroup.FS, name string, add bool) (raisedCgroup, error) {
	g, err := fs.Group(name)
	if err != nil {
		return raisedCgroup{}, err
	}
	defer g.Close()
	limit, err := g.MemoryMin(make([]byte, 64))
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the memory controller is not enabled in the parent cgroup", err)
	}
	if err != nil || limit.Unlimited { // unlimited protection needs no raise
		return raisedCgroup{}, err
	}
	r := raisedCgroup{path: name, id: g.ID(), before: limit.Bytes}
	text, noted, noteErr := g.Note(noteName)
	if before, written, ok := parseNote(text); noted && ok && written == limit.Bytes {
		r.before = before // an earlier run wrote limit
	}
	r.written = max(r.before, ownMemory)
	if add {
		r.written = r.before + ownMemory
	}
	if noteErr == nil {
		noteErr = g.SetNote(noteName, fmt.Sprintf("%d %d", r.before, r.written))
	}
	if noteErr != nil { // an earlier run may have written the value: do not add to it
		r.written = max(limit.Bytes, ownMemory)
		noteErr = fmt.Errorf("note memory.min of /%s (it stays raised if the agent crashes): %w", name,
			noteErr)
	}
	if r.written == limit.Bytes && r.written == r.before {
		return raisedCgroup{}, errors.Join(noteErr, g.RemoveNote(noteName))
	}
	if err := g.SetMemoryMin(r.written); err != nil {
		return raisedCgroup{}, errors.Join(err, noteErr)
	}
	return r, noteErr
}

// Restore restores the memory.min of a cgroup that a crashed agent raised, and removes the note. A
// value that another process has written since stays. Without a note Restore does nothing.
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
	if err != nil && !errors.Is(err, os.ErrNotExist) { // keep the note for another attempt
		return false, err
	}
	return changed, g.RemoveNote(noteName)
}

// parseNote parses the note of raise.
func parseNote(text string) (before, written uint64, ok bool) {
	a, b, two := strings.Cut(text, " ")
	before, okA := cgroup.Decimal([]byte(a))
	written, okB := cgroup.Decimal([]byte(b))
	return before, written, two && okA && okB
}

// undo restores the former value. A cgroup that no longer exists is no error.
func (r *raisedCgroup) undo(fs *cgroup.FS) error {
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
		_ = g.RemoveNote(noteName) // fails if the kernel does not support notes
	}
	if errors.Is(err, cgroup.ErrVanished) {
		return nil
	}
	return err
}
