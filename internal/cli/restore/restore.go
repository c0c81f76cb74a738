// Package restore puts back what an agent that has ended for good has left on a node's cgroups:
// limits and protection of pods, memory.min, CPU limits of a victim, processes that it froze, and
// the notes of them all. An agent that ends by itself puts back most of it, and one that starts
// anew the rest; this is for a node that it leaves.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"jettison/cgroup"
	"jettison/internal/base/atomicfile"
	"jettison/internal/node/kill"
	"jettison/internal/node/limits"
	"jettison/internal/node/selfprotect"
)

// options of run.
type options struct {
	fs         *cgroup.FS
	cgroupRoot string // the kubelet's: pods are below it
	// of the agent, whose lock says that none runs; empty, or not there: that is not known
	stateDir string
	kubelet  func() bool   // looks for one now
	tell     limits.Teller // nil: systemd is not told
}

const (
	lockFile = "agent.lock" // package records has it while an agent runs

	maxDepth  = 32      // of cgroups, below the root
	maxGroups = 100_000 // that are looked into
)

// errRuns: an agent runs here.
var errRuns = errors.New("an agent runs here, and would write it all again: stop it first")

// run puts everything back and prints a line for each cgroup in which there was something to do.
// The error names what is left, and why. It may be run again.
func run(ctx context.Context, o options, w io.Writer) error {
	unlock, err := alone(o.stateDir)
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	r := limits.Mend(ctx, o.fs, o.cgroupRoot, false, o.kubelet, o.tell)
	if r.Err != nil {
		errs = append(errs, r.Err)
	}
	s := sweep{FS: o.fs, kubelet: o.kubelet(), files: r.Restored, buf: make([]byte, 32<<10)}
	errs = append(errs, s.below(ctx, "", maxDepth))
	for _, line := range s.said {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "%d limits of pods put back, %d of %d cgroups had something else of the "+
		"agent's\n", s.files, len(s.said), s.groups)
	if err != nil {
		return err
	}
	return errors.Join(append(errs, s.errs...)...)
}

// alone makes sure that no agent runs that keeps its state in a directory.
func alone(stateDir string) (unlock func(), err error) {
	if _, err := os.Stat(stateDir); stateDir == "" || err != nil {
		return func() {}, nil
	}
	f, err := atomicfile.Lock(filepath.Join(stateDir, lockFile))
	if errors.Is(err, atomicfile.ErrLocked) {
		return nil, fmt.Errorf("%s: %w", stateDir, errRuns)
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

const (
	// formerFrozen is the note of a frozen cgroup that older agents, or whoever owns the cgroup's
	// directory, may have left. None goes by it (cgroup.ProcKiller).
	formerFrozen = "cgroup.freeze"
	// limitNotes begins those of package noted.
	limitNotes = cgroup.Trusted + "before."
)

// sweep goes through all cgroups.
type sweep struct {
	*cgroup.FS
	kubelet bool
	files   int
	groups  int
	buf     []byte
	said    []string
	errs    []error
}

// below looks into a cgroup and all below it. The error says that not all were looked into.
func (s *sweep) below(ctx context.Context, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.groups++; depth == 0 || s.groups > maxGroups {
		return fmt.Errorf("cgroups below /%s were not looked into: they lie too deep, or there are too many", name)
	}
	if kill.IsScratch(path.Base(name)) {
		s.scratch(name)
		return nil
	}
	s.group(name)
	var names []string
	if err := s.Children(name, s.buf,
		func(child string) { names = append(names, child) }); err != nil {
		if errors.Is(err, cgroup.ErrVanished) {
			return nil
		}
		return err
	}
	var errs []error
	for _, child := range names {
		errs = append(errs, s.below(ctx, path.Join(name, child), depth-1))
	}
	return errors.Join(errs...)
}

// scratch removes a cgroup of the self-test's.
func (s *sweep) scratch(name string) {
	if err := s.RemoveEmpty(name); err != nil {
		s.errs = append(s.errs, err)
		return
	}
	s.said = append(s.said, "/"+name+": removed, a self-test left it")
}

// group puts back what is noted of one cgroup.
func (s *sweep) group(name string) {
	g, err := s.Group(name)
	if err != nil {
		s.failed(name, err)
		return
	}
	defer g.Close()
	notes, err := g.Notes()
	if err != nil || len(notes) == 0 {
		s.failed(name, err)
		return
	}
	var did []string
	if s.anothers(name) {
		if s.disown(g, name, notes) {
			did = append(did, "notes removed that its owner may have left")
		}
	} else {
		did = s.unprotect(g, name)
	}
	mended, err := kill.Mend(s.FS, []string{name})
	s.failed(name, err)
	if len(mended) > 0 {
		did = append(did, "CPU limits put back, processes thawed")
	}
	if notes, err = g.Notes(); err != nil {
		s.failed(name, err)
		return
	}
	for _, note := range notes {
		if note == formerFrozen {
			s.failed(name, g.RemoveNote(note))
			did = append(did, "note "+note+" removed: an older agent's, or anybody's")
			continue
		}
		// Beside a kubelet the limits above pods are its own, whatever they were before (limits.Mend).
		if s.kubelet && strings.HasPrefix(note, limitNotes) {
			s.failed(name, g.RemoveNote(note))
			did = append(did, "note "+note+" removed: beside a kubelet its value stays")
			continue
		}
		s.failed(name, fmt.Errorf("note %s stays", note))
	}
	if len(did) == 0 {
		did = append(did, "notes removed")
	}
	s.said = append(s.said, "/"+name+": "+strings.Join(did, ", "))
}

// unprotect puts back what protects an agent in its own cgroup.
func (s *sweep) unprotect(g *cgroup.Group, name string) (did []string) {
	for file, restore := range map[string]func(*cgroup.Group) (bool, error){
		"memory.min": selfprotect.Restore, "memory.oom.group": selfprotect.RestoreOOMGroup,
	} {
		changed, err := restore(g)
		if s.failed(name, err); changed {
			did = append(did, file+" put back")
		}
	}
	slices.Sort(did)
	return did
}

// anothers reports whether somebody other than root owns a cgroup's directory, or may write to it,
// as that of a user's own services or of a container in a user namespace: whatever is not
// cgroup.Trusted there he may have noted, with a value of his choice to be "put back".
func (s *sweep) anothers(name string) bool {
	info, err := os.Stat(filepath.Join(s.Mount(), name))
	if err != nil {
		return true
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return !ok || owner.Uid != 0 || info.Mode().Perm()&0o022 != 0
}

// disown removes the notes that nobody goes by.
func (s *sweep) disown(g *cgroup.Group, name string, notes []string) (removed bool) {
	for _, note := range notes {
		if !strings.HasPrefix(note, cgroup.Trusted) {
			s.failed(name, g.RemoveNote(note))
			removed = true
		}
	}
	return removed
}

// failed keeps what went wrong with a cgroup that is there still.
func (s *sweep) failed(name string, err error) {
	if err != nil && !errors.Is(err, cgroup.ErrVanished) {
		s.errs = append(s.errs, fmt.Errorf("restore cgroup /%s: %w", name, err))
	}
}
