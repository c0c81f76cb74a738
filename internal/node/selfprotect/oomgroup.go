package selfprotect

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"jettison/cgroup"
)

// groupNote is the note with a cgroup's former memory.oom.group, like noteName.
const groupNote = "memory.oom.group"

// IsolateOOMKills makes an OOM kill in the agent's own cgroup end one process only. A command that a user
// runs in the agent's container, and that uses up the container's memory, is then killed alone,
// because it has a higher oom_score_adj. A kubelet makes the kernel kill all processes of a
// container together (since v1.28, pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
// memory.oom.group), unless singleProcessOOMKill is set.
//
// undo restores the former value, unless another process has changed it. After a crash the value
// stays, and the former one is noted.
func IsolateOOMKills(fs *cgroup.FS, own string) (undo func() error, err error) {
	own = strings.Trim(path.Clean("/"+own), "/")
	none := func() error { return nil }
	if own == "" { // the root cgroup has no memory.oom.group
		return none, nil
	}
	id, done, err := clearOOMGroup(fs, own)
	if err != nil {
		err = fmt.Errorf("disable OOM group kills in the agent's cgroup: %w", err)
	}
	if !done {
		return none, err
	}
	return func() error {
		g, err := fs.Group(own)
		if err == nil {
			defer g.Close()
			if g.ID() == id {
				_, err = RestoreOOMGroup(g)
			}
		}
		if errors.Is(err, cgroup.ErrVanished) {
			return nil
		}
		return err
	}, err
}

// clearOOMGroup clears memory.oom.group. done reports whether there is a former value to restore.
func clearOOMGroup(fs *cgroup.FS, own string) (id cgroup.ID, done bool, err error) {
	g, err := fs.Group(own)
	if err != nil {
		return id, false, err
	}
	defer g.Close()
	all, err := g.OOMGroup(make([]byte, digitFileSize))
	if errors.Is(err, os.ErrNotExist) { // before v4.19, or without the memory controller
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	if !all { // cleared already
		_, noted, err := g.Note(groupNote)
		return g.ID(), noted && err == nil, nil
	}
	if err := g.SetNote(groupNote, "1 0"); err != nil {
		// Without the note the value is never restored. It ends with the cgroup of the container or
		// service.
		return id, false, errors.Join(fmt.Errorf("note memory.oom.group of /%s (it stays 0): %w",
			own, err), g.SetOOMGroup(false))
	}
	return g.ID(), true, g.SetOOMGroup(false)
}

// digitFileSize is the buffer size for a file with one digit.
const digitFileSize = 64

// RestoreOOMGroup restores the memory.oom.group of a cgroup that an agent cleared, and removes the
// note. A value that another process has written since stays. Without a note it does nothing.
func RestoreOOMGroup(g *cgroup.Group) (changed bool, err error) {
	text, noted, err := g.Note(groupNote)
	if err != nil || !noted {
		return false, err
	}
	all, err := g.OOMGroup(make([]byte, digitFileSize))
	if before, written, ok := parseNote(text); err == nil && ok && before == 1 && written == 0 &&
		!all {
		if err = g.SetOOMGroup(true); err == nil {
			changed = true
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // keep the note for another attempt
		return false, err
	}
	return changed, g.RemoveNote(groupNote)
}
