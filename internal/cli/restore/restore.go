// Package restore implements jettison restore: it restores the cgroup settings that an agent
// changed (limits and protection of pods, memory.min, frozen processes) and
// removes their notes. An agent restores most of them when it stops, and the rest at its next
// start; this package is for a node that jettison is removed from.
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

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/internal/base/atomicfile"
	"jettison/internal/node/kill"
	"jettison/internal/node/limits"
	"jettison/internal/node/selfprotect"
)

// options of run.
type options struct {
	fs         *cgroup.FS
	cgroupRoot string // the kubelet's cgroup root, the parent of pods
	// stateDir holds the agent's lock, which proves that no agent runs; empty or missing: unknown.
	stateDir string
	kubelet  func() bool    // reports whether a kubelet runs now
	systemd  limits.Updater // sets limits through systemd; nil: only cgroup files are written
	dryRun   bool           // print the settings, change nothing
}

const (
	lockFile = "agent.lock" // locked by package records while an agent runs

	maxDepth  = 32      // of cgroups, below the root
	maxGroups = 100_000 // visited cgroups
)

// errAgentRuns reports that an agent runs on this node.
var errAgentRuns = errors.New("an agent is running and would write the settings again: stop it first")

// errHidden reports that this process cannot see the settings.
var errHidden = errors.New("the kernel hides the agent's settings from a process without " +
	"CAP_SYS_ADMIN, and from one in a user namespace: run restore as root on the node")

// run restores all settings and prints a line for each changed cgroup. It returns an error that
// names the settings left, and why. It may be run again. With dryRun it only prints the settings.
func run(ctx context.Context, o options, w io.Writer) error {
	if !seesSettings() {
		return errHidden
	}
	if o.dryRun {
		return plan(ctx, o, w)
	}
	if o.fs.ReadOnly() {
		return fmt.Errorf("%s: mounted read-only, so no setting can be restored: run restore on the node",
			o.fs.Mount())
	}
	unlock, err := lock(o.stateDir)
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	r := limits.Restore(ctx, o.fs, o.cgroupRoot, false, o.kubelet, o.systemd)
	if r.Err != nil {
		errs = append(errs, r.Err)
	}
	s := sweep{FS: o.fs, kubelet: o.kubelet(), files: r.Restored, buf: make([]byte, 32<<10)}
	errs = append(errs, s.visit(ctx, "", maxDepth))
	if err := s.print(w, fmt.Sprintf("%d limits of pods restored, %d of %d cgroups had other settings "+
		"of the agent", s.files, len(s.lines), s.groups)); err != nil {
		return err
	}
	return errors.Join(append(errs, s.errs...)...)
}

// seesSettings reports whether this process has CAP_SYS_ADMIN on the node. Without it the kernel
// omits trusted attributes from a list (v6.12 fs/xattr.c simple_xattr_list), so settings would seem
// to be absent. The capability of a user namespace does not count.
func seesSettings() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil ||
		caps[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return false
	}
	var namespace unix.Stat_t
	return unix.Stat("/proc/self/ns/user", &namespace) == nil && namespace.Ino == initialUserNamespace
}

// initialUserNamespace is the inode of the node's user namespace (v6.12 include/linux/proc_ns.h).
const initialUserNamespace = 0xeffffffd

// plan prints the settings of the agent and changes nothing.
func plan(ctx context.Context, o options, w io.Writer) error {
	s := sweep{FS: o.fs, kubelet: o.kubelet(), dryRun: true, buf: make([]byte, 32<<10)}
	err := s.visit(ctx, "", maxDepth)
	if err := s.print(w, fmt.Sprintf("settings of the agent in %d of %d cgroups, nothing changed",
		len(s.lines), s.groups)); err != nil {
		return err
	}
	return errors.Join(append(s.errs, err)...)
}

// print prints a line for each cgroup with settings, and a last line.
func (s *sweep) print(w io.Writer, last string) error {
	_, err := fmt.Fprintln(w, strings.Join(append(s.lines, last), "\n"))
	return err
}

// lock takes the agent's lock in stateDir. It returns errAgentRuns if an agent holds it.
func lock(stateDir string) (unlock func(), err error) {
	if _, err := os.Stat(stateDir); stateDir == "" || err != nil {
		return func() {}, nil
	}
	f, err := atomicfile.Lock(filepath.Join(stateDir, lockFile))
	if errors.Is(err, atomicfile.ErrLocked) {
		return nil, fmt.Errorf("%s: %w", stateDir, errAgentRuns)
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

const (
	// limitNotes is the prefix of the notes of package noted.
	limitNotes = cgroup.Trusted + "before."
)

// formerNotes are notes of older agents, or of the owner of a cgroup's directory. No code uses them.
var formerNotes = []string{"cgroup.freeze", "cpu", cgroup.Trusted + "cpu"}

// limitFiles are the limits above pods, which a running kubelet owns.
var limitFiles = []cgroup.LimitFile{cgroup.FilePIDsMax, cgroup.FileCPUWeight, cgroup.FileMemoryMax}

// sweep visits all cgroups.
type sweep struct {
	*cgroup.FS
	kubelet bool
	dryRun  bool
	files   int
	groups  int
	buf     []byte
	lines   []string // one for each changed cgroup; with dryRun: for each that would change
	errs    []error
}

// visit visits a cgroup and its descendants. It returns an error if some were not visited.
func (s *sweep) visit(ctx context.Context, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.groups++; depth == 0 || s.groups > maxGroups {
		return fmt.Errorf("cgroups below /%s not visited: nested too deeply, or too many", name)
	}
	if kill.IsScratch(path.Base(name)) {
		s.removeScratch(name)
		return nil
	}
	s.restoreGroup(name)
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
		errs = append(errs, s.visit(ctx, path.Join(name, child), depth-1))
	}
	return errors.Join(errs...)
}

// removeScratch removes a cgroup of the self-test.
func (s *sweep) removeScratch(name string) {
	if s.dryRun {
		s.lines = append(s.lines, "/"+name+": would be removed, leftover of a self-test")
		return
	}
	if err := s.RemoveEmpty(name); err != nil {
		s.errs = append(s.errs, err)
		return
	}
	s.lines = append(s.lines, "/"+name+": removed, leftover of a self-test")
}

// restoreGroup restores the settings that are noted for one cgroup.
func (s *sweep) restoreGroup(name string) {
	g, err := s.Group(name)
	if err != nil {
		s.addError(name, err)
		return
	}
	defer g.Close()
	notes, err := g.Notes()
	if err != nil || len(notes) == 0 {
		s.addError(name, err)
		return
	}
	if s.dryRun {
		s.planGroup(name, notes)
		return
	}
	var actions []string
	if s.untrusted(name) {
		if s.removeUntrusted(g, name, notes) {
			actions = append(actions, "removed notes that its owner may have written")
		}
	} else {
		actions = s.unprotect(g, name)
	}
	thawed, err := kill.Restore(s.FS, []string{name})
	s.addError(name, err)
	if len(thawed) > 0 {
		actions = append(actions, "processes thawed")
	}
	if notes, err = g.Notes(); err != nil {
		s.addError(name, err)
		return
	}
	for _, note := range notes {
		if slices.Contains(formerNotes, note) {
			s.addError(name, g.RemoveNote(note))
			actions = append(actions, "note "+note+" removed: written by an older agent or the owner")
			continue
		}
		// A running kubelet owns the limits above pods; their former values are void
		// (limits.Restore).
		if s.kubelet && strings.HasPrefix(note, limitNotes) {
			s.addError(name, g.RemoveNote(note))
			actions = append(actions, "note "+note+" removed: the running kubelet owns the value")
			continue
		}
		s.addError(name, fmt.Errorf("unknown note %s kept", note))
	}
	if len(actions) == 0 {
		actions = append(actions, "notes removed")
	}
	s.lines = append(s.lines, "/"+name+": "+strings.Join(actions, ", "))
}

// noted has the settings of notes other than limitNotes and frozenNote.
var noted = map[string]string{
	"memory.min": "memory.min", "memory.oom.group": "memory.oom.group",
	cgroup.Trusted + "untold": "the limits that systemd knows",
}

// frozenNote marks a cgroup with processes that a kill has frozen.
const frozenNote = cgroup.Trusted + "cgroup.freeze"

// planGroup describes what a run without dryRun does with the notes of a cgroup.
func (s *sweep) planGroup(name string, notes []string) {
	untrusted := s.untrusted(name)
	var restored, left, removed, actions []string
	for _, note := range notes {
		file, before := strings.CutPrefix(note, limitNotes)
		setting, known := noted[note]
		switch {
		case slices.Contains(formerNotes, note), untrusted && !strings.HasPrefix(note, cgroup.Trusted):
			removed = append(removed, note)
		case before && s.kubelet && slices.Contains(limitFiles, cgroup.LimitFile(file)):
			left = append(left, file)
		case before:
			restored = append(restored, file)
		case known:
			restored = append(restored, setting)
		case note == frozenNote:
			actions = append(actions, "would thaw the processes")
		default:
			s.addError(name, fmt.Errorf("unknown note %s would be kept", note))
		}
	}
	for _, one := range []struct {
		settings []string
		format   string
	}{
		{restored, "would restore %s"}, {left, "would leave %s to the kubelet"},
		{removed, "would remove the notes %s: written by an older agent or the owner"},
	} {
		if slices.Sort(one.settings); len(one.settings) > 0 {
			actions = append(actions, fmt.Sprintf(one.format, strings.Join(one.settings, ", ")))
		}
	}
	if len(actions) > 0 {
		s.lines = append(s.lines, "/"+name+": "+strings.Join(actions, "; "))
	}
}

// unprotect restores the settings that protect an agent in its own cgroup.
func (s *sweep) unprotect(g *cgroup.Group, name string) (actions []string) {
	for file, restore := range map[string]func(*cgroup.Group) (bool, error){
		"memory.min": selfprotect.Restore, "memory.oom.group": selfprotect.RestoreOOMGroup,
	} {
		changed, err := restore(g)
		if s.addError(name, err); changed {
			actions = append(actions, file+" restored")
		}
	}
	slices.Sort(actions)
	return actions
}

// untrusted reports whether a user other than root owns a cgroup's directory or may write to it,
// such as that of a user's services or of a container in a user namespace. That user may have
// written any note there that is not cgroup.Trusted, with a value of the user's choice to be
// restored.
func (s *sweep) untrusted(name string) bool {
	info, err := os.Stat(filepath.Join(s.Mount(), name))
	if err != nil {
		return true
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return !ok || owner.Uid != 0 || info.Mode().Perm()&0o022 != 0
}

// removeUntrusted removes the notes that are not cgroup.Trusted.
func (s *sweep) removeUntrusted(g *cgroup.Group, name string, notes []string) (removed bool) {
	for _, note := range notes {
		if !strings.HasPrefix(note, cgroup.Trusted) {
			s.addError(name, g.RemoveNote(note))
			removed = true
		}
	}
	return removed
}

// addError records an error of a cgroup, unless the cgroup has vanished.
func (s *sweep) addError(name string, err error) {
	if err != nil && !errors.Is(err, cgroup.ErrVanished) {
		s.errs = append(s.errs, fmt.Errorf("restore cgroup /%s: %w", name, err))
	}
}
