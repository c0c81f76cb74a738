package kill

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"jettison/cgroup"
)

// noteCPU is where the CPU limits are kept that a pod's cgroup had before they were raised: "QUOTA
// PERIOD WEIGHT IDLE", the times in microseconds, "max" for no quota, "-" for what it does not
// have. The order is: note, raise; restore, remove the note. So a crash leaves nothing raised that
// is not noted, and Mend puts it back at the next start.
//
// formerCPU is where agents kept it that any owner of a cgroup's directory could write to: a
// container that survives its kill, or another one in its place, had no limit any more if it had
// noted that there was none. So it counts only where such an agent may have crashed, or was
// replaced in the middle of a kill: where there is no noteCPU, and nothing is limited now. It harms
// none but who forges it: what is put back only ever takes CPU time away (cgroup.Group.RestoreCPU).
const (
	noteCPU   = cgroup.Trusted + "cpu"
	formerCPU = "cpu"
)

// cpuNote is what is noted of the settings.
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

// parseCPUNote reads what cpuNote says. A note may be another version's, or anybody's where it was
// kept formerly: nothing is taken from it that the kernel would not have said.
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

// raiseCPU notes what a pod's own cgroup has, before, and raises it. raised may come with an error:
// not all of it was, or it is not noted.
func raiseCPU(g *cgroup.Group, buf []byte) (before cgroup.CPUSettings, raised bool, err error) {
	if before, err = g.CPUSettings(buf); err != nil {
		return before, false, err
	}
	text, _, noteErr := g.Note(noteCPU)
	if earlier, ok := parseCPUNote(text); ok && noteErr == nil {
		before = earlier // another attempt at the same pod has raised them already
	} else if noteErr == nil {
		before = formerly(g, before)
		noteErr = g.SetNote(noteCPU, cpuNote(before))
	}
	// the dying need it now, and a crash is rare
	if noteErr != nil && !errors.Is(noteErr, cgroup.ErrVanished) {
		noteErr = fmt.Errorf("remember the CPU limits: %w: after a crash they would stay raised", noteErr)
	}
	if err = g.RaiseCPU(); err == nil {
		err = noteErr
	}
	return before, true, err
}

// formerly is what a group had before an older agent raised it, which Mend has not come to: where
// nothing is limited now, what that noted.
func formerly(g *cgroup.Group, now cgroup.CPUSettings) cgroup.CPUSettings {
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

// restoreCPU puts back what raiseCPU has raised.
func restoreCPU(g *cgroup.Group, before cgroup.CPUSettings, buf []byte) error {
	if err := g.RestoreCPU(before, buf); err != nil {
		return err
	}
	forget(g)
	return nil
}

// forget removes what is noted. Where there are no notes it fails, and then there is none.
func forget(g *cgroup.Group) {
	_ = g.RemoveNote(noteCPU)
	_ = g.RemoveNote(formerCPU)
}

// reading is how a note is read.
type reading func(*cgroup.Group) (text string, noted bool, err error)

// sound reads what an agent has noted, and passes over what nobody vouches for and is none: a kill
// that failed is no time to sort it out.
func sound(g *cgroup.Group) (text string, noted bool, err error) {
	if text, noted, err = g.Note(noteCPU); noted || err != nil {
		return text, noted, err
	}
	text, _, err = g.Note(formerCPU)
	_, noted = parseCPUNote(text)
	return text, noted, err
}

// anyNote reads what an agent has noted, of whichever version.
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

// restoreAll puts back what was raised in a pod's own cgroup and in the groups below it, as far as
// that is noted. Its own note stays where that cannot be done, or not in time: so the next start
// tries again.
func restoreAll(g *cgroup.Group, before cgroup.CPUSettings, until time.Time, read reading,
	buf []byte) error {
	below := restoreBelow(g, until, read, buf)
	if below == nil {
		return restoreCPU(g, before, buf)
	}
	return errors.Join(g.RestoreCPU(before, buf), below)
}

func restoreBelow(top *cgroup.Group, until time.Time, read reading, buf []byte) error {
	var walker cgroup.Walker
	var errs error
	first := true
	deep := walker.Walk(top, func(g *cgroup.Group) bool {
		if first {
			first = false
			return true
		}
		if time.Now().After(until) {
			errs = errors.Join(errs, fmt.Errorf("it takes longer than %v to look through the groups below",
				mendLimit))
			return false
		}
		err := restoreNoted(g, read, buf)
		if err != nil && errs == nil && !errors.Is(err, cgroup.ErrVanished) {
			errs = err
		}
		return true
	})
	if deep && errs == nil {
		errs = errors.New("the groups below lie too deep to look through all of them")
	}
	return errs
}

// restoreNoted puts back what is noted of one group. Without a note nothing of it was raised.
func restoreNoted(g *cgroup.Group, read reading, buf []byte) error {
	text, noted, err := read(g)
	if err != nil || !noted {
		return err
	}
	before, ok := parseCPUNote(text)
	if !ok {
		forget(g)
		return fmt.Errorf("note %.40q is none of the agent's", text)
	}
	return restoreCPU(g, before, buf)
}

// mendLimit bounds Mend: the agent starts.
const mendLimit = time.Second

// Mend puts back what an agent that crashed in the middle of a kill has left in pods' cgroups
// (paths below the root of fs): CPU limits raised, or processes frozen. A kubelet keeps a pod's
// cgroup for its next sandbox. To be called at the start, before anything is killed. It returns the
// cgroups that it has mended; one that cannot be is an error, and is tried again at the next start.
func Mend(fs *cgroup.FS, paths []string) (mended []string, err error) {
	var errs []error
	buf := make([]byte, 256)
	until := time.Now().Add(mendLimit)
	for i, path := range paths {
		if time.Now().After(until) {
			errs = append(errs, fmt.Errorf(
				"%d cgroups of pods were not looked into for what a crash has left: it takes longer than %v",
				len(paths)-i, mendLimit))
			break
		}
		is, err := mend(fs, path, until, buf)
		if is {
			mended = append(mended, path)
		}
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			errs = append(errs, fmt.Errorf("put back what a crash has left in cgroup /%s: %w", path, err))
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
	if err != nil || !noted { // a kernel without notes has none
		return thawed, thawErr
	}
	before, ok := parseCPUNote(text)
	if !ok {
		forget(g)
		return thawed, errors.Join(thawErr, fmt.Errorf("note %.40q is none of the agent's", text))
	}
	// groups below were raised only where this one was noted
	err = restoreAll(g, before, until, anyNote, buf)
	return thawed || err == nil, errors.Join(thawErr, err)
}
