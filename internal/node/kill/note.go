package kill

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"jettison/cgroup"
)

// noteCPU is the note that keeps the CPU limits of a cgroup from before they were raised: "QUOTA
// PERIOD WEIGHT IDLE", times in microseconds, "max" for no quota, "-" for a missing setting. The
// order is: note, raise; restore, remove the note. So after a crash every raised limit is noted,
// and Restore restores it at the next start.
//
// formerCPU is the note that older agents wrote. The owner of the cgroup's directory can write it
// too: a container that survived its kill, or its successor, could note that it had no limit. So
// formerCPU is used only where an older agent may have crashed or been replaced in the middle of a
// kill: where noteCPU is missing and nothing is limited now. A forged note harms only its author,
// because a restore only ever reduces CPU time (cgroup.Group.RestoreCPU).
const (
	noteCPU   = cgroup.Trusted + "cpu"
	formerCPU = "cpu"
)

// cpuNote formats settings as the text of a note.
func cpuNote(s cgroup.CPUSettings) string {
	quota, period, weight, idle := "-", "-", "-", "0"
	if s.HasMax {
		quota, period = "max", strconv.FormatInt(s.Max.Period.Microseconds(), 10)
		if !s.Max.Unlimited {
			quota = strconv.FormatInt(s.Max.Quota.Microseconds(), 10)
		}
	}
	if s.HasWeight {
		weight = strconv.FormatUint(s.Weight, 10)
	}
	if s.Idle {
		idle = "1"
	}
	return strings.Join([]string{quota, period, weight, idle}, " ")
}

// parseCPUNote parses the text of cpuNote. Another version or, for formerCPU, another program may
// have written it, so only values that the kernel could have reported are accepted.
func parseCPUNote(text string) (s cgroup.CPUSettings, ok bool) {
	f := strings.Split(text, " ")
	if len(f) != 4 || f[3] != "0" && f[3] != "1" {
		return s, false
	}
	if s.HasMax = f[1] != "-"; s.HasMax {
		max, err := cgroup.ParseCPUMax([]byte(f[0] + " " + f[1]))
		if err != nil {
			return s, false
		}
		s.Max = max
	}
	if s.HasWeight = f[2] != "-"; s.HasWeight {
		weight, ok := cgroup.Decimal([]byte(f[2]))
		if !ok || weight > 10000 {
			return s, false
		}
		s.Weight = weight
	}
	s.Idle = f[3] == "1"
	return s, s.HasMax || s.HasWeight
}

// raiseCPU notes the CPU limits of a cgroup and then raises them. If raised and err are both set,
// some limits were not raised, or they could not be noted.
func raiseCPU(g *cgroup.Group, buf []byte) (before cgroup.CPUSettings, raised bool, err error) {
	if before, err = g.CPUSettings(buf); err != nil {
		return before, false, err
	}
	text, _, noteErr := g.Note(noteCPU)
	if earlier, ok := parseCPUNote(text); ok && noteErr == nil {
		before = earlier // an earlier attempt at the same pod has raised them already
	} else if noteErr == nil {
		before = mergeFormer(g, before)
		noteErr = g.SetNote(noteCPU, cpuNote(before))
	}
	// raise the limits anyway: dying processes need CPU time now, and a crash is rare
	if noteErr != nil && !errors.Is(noteErr, cgroup.ErrVanished) {
		noteErr = fmt.Errorf("note CPU limits (they stay raised if the agent crashes): %w", noteErr)
	}
	if err = g.RaiseCPU(); err == nil {
		err = noteErr
	}
	return before, true, err
}

// mergeFormer returns the settings from before an older agent raised them, in a cgroup that Restore
// has not restored: for each setting without a limit now, the value of formerCPU.
func mergeFormer(g *cgroup.Group, now cgroup.CPUSettings) cgroup.CPUSettings {
	text, _, err := g.Note(formerCPU)
	former, ok := parseCPUNote(text)
	if err != nil || !ok {
		return now
	}
	if now.HasMax && now.Max.Unlimited && former.HasMax {
		now.Max = former.Max
	}
	if now.HasWeight && now.Weight == cgroup.MaxCPUWeight && former.HasWeight {
		now.Weight, now.Idle = former.Weight, former.Idle
	}
	return now
}

// restoreCPU restores the limits that raiseCPU raised, and removes the notes.
func restoreCPU(g *cgroup.Group, before cgroup.CPUSettings, buf []byte) error {
	if err := g.RestoreCPU(before, buf); err != nil {
		return err
	}
	removeNotes(g)
	return nil
}

// removeNotes removes both notes. Errors are ignored: without a note there is nothing to remove.
func removeNotes(g *cgroup.Group) {
	_ = g.RemoveNote(noteCPU)
	_ = g.RemoveNote(formerCPU)
}

// noteReader reads the note of a cgroup.
type noteReader func(*cgroup.Group) (text string, noted bool, err error)

// trustedNote reads noteCPU, or else formerCPU if it is valid. It ignores an invalid formerCPU,
// which only Restore reports and removes.
func trustedNote(g *cgroup.Group) (text string, noted bool, err error) {
	if text, noted, err = g.Note(noteCPU); noted || err != nil {
		return text, noted, err
	}
	text, _, err = g.Note(formerCPU)
	_, noted = parseCPUNote(text)
	return text, noted, err
}

// anyNote reads noteCPU, or else formerCPU, valid or not.
func anyNote(g *cgroup.Group) (text string, noted bool, err error) {
	if text, noted, err = g.Note(noteCPU); noted {
		return text, noted, err
	}
	former, noted, formerErr := g.Note(formerCPU)
	if noted {
		return former, true, nil
	}
	return "", false, errors.Join(err, formerErr)
}

// restoreAll restores the noted limits of a pod's own cgroup and of its child cgroups. If that
// fails or does not finish by until, the note of the pod's own cgroup stays, so that the next start
// retries.
func restoreAll(g *cgroup.Group, before cgroup.CPUSettings, until time.Time, read noteReader,
	buf []byte) error {
	below := restoreBelow(g, until, read, buf)
	if below == nil {
		return restoreCPU(g, before, buf)
	}
	return errors.Join(g.RestoreCPU(before, buf), below)
}

func restoreBelow(top *cgroup.Group, until time.Time, read noteReader, buf []byte) error {
	var walker cgroup.Walker
	var errs error
	first := true
	deep := walker.Walk(top, func(g *cgroup.Group) bool {
		if first {
			first = false
			return true
		}
		if time.Now().After(until) {
			errs = errors.Join(errs, fmt.Errorf("restore child cgroups: not finished within %v", restoreLimit))
			return false
		}
		err := restoreNoted(g, read, buf)
		if err != nil && errs == nil && !errors.Is(err, cgroup.ErrVanished) {
			errs = err
		}
		return true
	})
	if err := walker.Err(); err != nil && errs == nil {
		errs = fmt.Errorf("restore child cgroups: %w", err)
	}
	if deep && errs == nil {
		errs = errors.New("restore child cgroups: nested too deep to restore all of them")
	}
	return errs
}

// restoreNoted restores the noted limits of one cgroup. Without a note nothing was raised.
func restoreNoted(g *cgroup.Group, read noteReader, buf []byte) error {
	text, noted, err := read(g)
	if err != nil || !noted {
		return err
	}
	before, ok := parseCPUNote(text)
	if !ok {
		removeNotes(g)
		return fmt.Errorf("note %.40q was not written by an agent", text)
	}
	return restoreCPU(g, before, buf)
}

// restoreLimit bounds Restore, which delays the start of the agent.
const restoreLimit = time.Second

// Restore restores pod cgroups (paths below the root of fs) after a crash in the middle of a kill: it
// resets raised CPU limits and thaws frozen processes. A kubelet keeps a pod's cgroup for its next
// sandbox. Call it at the start, before any kill. It returns the restored cgroups. A cgroup that
// cannot be restored is an error, and the next start retries it.
func Restore(fs *cgroup.FS, paths []string) (mended []string, err error) {
	var errs []error
	buf := make([]byte, 256)
	until := time.Now().Add(restoreLimit)
	for i, path := range paths {
		if time.Now().After(until) {
			errs = append(errs, fmt.Errorf(
				"restore pod cgroups after a crash: %d not checked within %v", len(paths)-i, restoreLimit))
			break
		}
		restored, err := mend(fs, path, until, buf)
		if restored {
			mended = append(mended, path)
		}
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			errs = append(errs, fmt.Errorf("restore cgroup /%s after a crash: %w", path, err))
		}
	}
	return mended, errors.Join(errs...)
}

func mend(fs *cgroup.FS, path string, until time.Time, buf []byte) (mended bool, err error) {
	g, err := fs.Group(path)
	if err != nil {
		return false, err
	}
	defer g.Close()
	thawed, thawErr := g.Thaw()
	text, noted, err := anyNote(g)
	if err != nil || !noted { // err: the kernel does not support notes
		return thawed, thawErr
	}
	before, ok := parseCPUNote(text)
	if !ok {
		removeNotes(g)
		return thawed, errors.Join(thawErr, fmt.Errorf("note %.40q was not written by an agent", text))
	}
	// child cgroups are raised only after the note on this one
	err = restoreAll(g, before, until, anyNote, buf)
	return thawed || err == nil, errors.Join(thawErr, err)
}
