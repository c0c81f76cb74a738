package selfprotect

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"jettison/cgroup"
)

// groupNote is where a cgroup's memory.oom.group from before is kept, as noteName is.
const groupNote = "memory.oom.group"

// Apart has an OOM kill in the agent's own cgroup be of one process: a command that somebody runs
// in its container, and that takes the container's memory, is killed alone, having a higher
// oom_score_adj. A kubelet has all processes of a container killed together (since v1.28,
// pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, memory.oom.group), where
// singleProcessOOMKill is not set.
//
// undo puts the former value back, unless another process has changed it meanwhile. After a crash
// it stays, and is noted.
func Apart(fs *cgroup.FS, own string) (undo func() error, err error) {
	own = strings.Trim(path.Clean("/"+own), "/")
	none := func() error { return nil }
	if own == "" { // the root cgroup has none
		return none, nil
	}
	id, done, err := apart(fs, own)
	if err != nil {
		err = fmt.Errorf("have commands in the agent's container killed apart from it: %w", err)
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

// apart reports whether there is something to put back.
func apart(fs *cgroup.FS, own string) (id cgroup.ID, done bool, err error) {
	g, err := fs.Group(own)
	if err != nil {
		return id, false, err
	}
	defer g.Close()
	all, err := g.OOMGroup(make([]byte, oneWord))
	if errors.Is(err, os.ErrNotExist) { // before v4.19, or without the memory controller
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	if !all { // as it should be, whoever wrote that
		_, noted, err := g.Note(groupNote)
		return g.ID(), noted && err == nil, nil
	}
	if err := g.SetNote(groupNote, "1 0"); err != nil {
		// Without the note nobody puts it back: it goes with the cgroup, which is the container's or the
		// service's.
		return id, false, errors.Join(fmt.Errorf("remember memory.oom.group of /%s: %w: it would stay 0",
			own, err), g.SetOOMGroup(false))
	}
	return g.ID(), true, g.SetOOMGroup(false)
}

// oneWord is room for a file of one digit.
const oneWord = 64

// RestoreOOMGroup puts back the memory.oom.group that a cgroup had before an agent cleared it, and
// removes the note. A value that another process has written meanwhile stays. Without a note
// nothing is done.
func RestoreOOMGroup(g *cgroup.Group) (changed bool, err error) {
	text, noted, err := g.Note(groupNote)
	if err != nil || !noted {
		return false, err
	}
	all, err := g.OOMGroup(make([]byte, oneWord))
	if before, written, ok := parseNote(text); err == nil && ok && before == 1 && written == 0 &&
		!all {
		if err = g.SetOOMGroup(true); err == nil {
			changed = true
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the note says still what is to be put back
		return false, err
	}
	return changed, g.RemoveNote(groupNote)
}
