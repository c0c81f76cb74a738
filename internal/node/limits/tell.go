package limits

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/internal/node/cgroupundo"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// tellAgain is how long after systemd did not answer it is left alone, unless something is written.
const tellAgain = time.Minute

// noteOwed is on a slice of systemd's from before a file of it is written until systemd was told:
// whoever dies between, or is not answered, leaves it to the next pass or process. Without it
// systemd would write a limit again that is put back, and nobody would know.
const noteOwed = cgroup.Trusted + "untold"

// untold is what comes of it where systemd does not take all of it.
const untold = "it is told again, and what it sets back meanwhile is written again"

// unitName is that of a slice of systemd's; empty: a cgroup is none. By its name a slice lies in
// one place only, so that nothing below a pod is taken for another's.
func unitName(cgroupPath string) string {
	name := path.Base(cgroupPath)
	if !strings.HasSuffix(name, ".slice") || podindex.CgroupOfParent(name) != cgroupPath {
		return ""
	}
	return name
}

// isSlice: systemd is told of these alone. A container's scope ends with it.
func (p *pass) isSlice(cgroupPath string) bool {
	return p.Tell != nil && unitName(cgroupPath) != ""
}

// slice is one of systemd's that it is to be told of.
type slice struct {
	path string
	// before: it was to be told of it before this pass, so that it knows an earlier value than what
	// was there.
	before bool
	// files that have again what they had before, which is noted until it is told
	back map[cgroup.LimitFile]bool
}

// owes notes, before a slice is written to, that systemd is to be told of it.
func (p *pass) owes(g *cgroup.Group, cgroupPath string) error {
	if !p.isSlice(cgroupPath) || p.owed[cgroupPath] != nil {
		return nil
	}
	if err := g.SetNote(noteOwed, ""); err != nil {
		return fmt.Errorf("note that systemd is to be told: %w: without that nothing is written", err)
	}
	p.remember(cgroupPath)
	p.written = true
	return nil
}

// wrote keeps that a file was written: systemd is told now, though it did not answer a moment ago.
func (p *pass) wrote(cgroupPath string) { p.written = p.written || p.owed[cgroupPath] != nil }

// recall sees whether systemd was not told of a slice that was written to before.
func (p *pass) recall(g *cgroup.Group, cgroupPath string) {
	if !p.isSlice(cgroupPath) || p.owed[cgroupPath] != nil {
		return
	}
	_, owed, err := g.Note(noteOwed)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		p.failed(err)
	}
	if owed {
		p.remember(cgroupPath).before = true
	}
}

func (p *pass) remember(cgroupPath string) *slice {
	if p.owed == nil {
		p.owed = map[string]*slice{}
	}
	s := &slice{path: cgroupPath, back: map[cgroup.LimitFile]bool{}}
	p.owed[cgroupPath] = s
	p.slices = append(p.slices, s)
	return s
}

// isUntold reports whether systemd knows an earlier value than what was there when the pass began.
func (p *pass) isUntold(cgroupPath string) bool {
	s := p.owed[cgroupPath]
	return s != nil && s.before
}

// tell tells systemd of the slices that it is to be told of.
func (p *pass) tell() {
	if len(p.slices) == 0 {
		return
	}
	if !p.written && time.Since(p.refused) < tellAgain {
		p.left = true
		return
	}
	p.refused = time.Time{}
	if err := p.Tell(p.ctx, p.units(), p.told); err != nil {
		p.refused = time.Now()
		p.failed(fmt.Errorf("tell systemd: %w: %s", err, untold))
	}
}

// told takes that systemd knows of a slice what it was told: nothing older is noted any more, nor
// of what was put back there. What it set back while it was told it does not know: the slice says
// something else then, what is noted stays, and it is told once more.
func (p *pass) told(u Unit) {
	g, err := p.FS.Group(u.of.path)
	if err != nil {
		p.failed(err)
		return
	}
	defer g.Close()
	all := true
	for file, said := range u.Files {
		now, readErr := g.Limit(file, p.buf[:])
		switch {
		case readErr != nil:
			err = errors.Join(err, readErr)
		case now != said:
			all = false
		case u.of.back[file]:
			err = errors.Join(err, cgroupundo.Forget(g, file))
		default:
			err = errors.Join(err, cgroupundo.Told(g, file))
		}
	}
	if all && err == nil {
		err = g.RemoveNote(noteOwed)
	}
	p.left = p.left || !all
	p.failed(err)
}

// restore puts back what files of a cgroup had before.
func (p *pass) restore(g *cgroup.Group, cgroupPath string, files ...cgroup.LimitFile) {
	for _, file := range files {
		_, _, err := p.putBack(g, cgroupPath, file)
		p.failed(err)
	}
}

// putBack puts back what one file had before, and says what it says then. In a slice that stays
// noted until systemd was told: what it sets back meanwhile, for it was told of that once, is known
// for the agent's own then, and put back once more.
func (p *pass) putBack(g *cgroup.Group, cgroupPath string, file cgroup.LimitFile) (now cgroup.Limit,
	done bool, err error) {
	c, isNoted, err := cgroupundo.Find(g, file)
	if err != nil || !isNoted {
		return c.Now, false, err
	}
	if may, err := p.mayPutBack(g, cgroupPath, &c); err != nil || !may {
		return c.Now, false, err
	}
	if err := p.owes(g, cgroupPath); err != nil {
		return c.Now, false, err
	}
	changed, err := c.Restore()
	if err != nil {
		return c.Now, false, err
	}
	if changed {
		p.r.Restored++
		p.wrote(cgroupPath)
	}
	if s := p.owed[cgroupPath]; s != nil {
		s.back[file] = true
		return c.Now, true, nil
	}
	return c.Now, true, cgroupundo.Forget(g, file)
}

// mayPutBack: what cgroups above pods are limited to is a kubelet's where one is here, and a
// memory.max is not put back where pods have outgrown it.
func (p *pass) mayPutBack(g *cgroup.Group, cgroupPath string, c *cgroupundo.Control) (bool, error) {
	if slices.Contains(protections, c.File) {
		return true, nil
	}
	if !p.allowed() {
		p.left = true
		return false, nil
	}
	if c.File != cgroup.FileMemoryMax || !c.Ours || c.Before.Unlimited || !c.Now.Unlimited &&
		c.Before.Bytes >= c.Now.Bytes {
		return true, nil
	}
	current, err := g.MemoryCurrent(p.buf[:])
	if err == nil && stats.SaturatingAdd(current, raceMargin) > c.Before.Bytes {
		err = fmt.Errorf("memory.max of /%s was %v before the agent came, and pods use %d: it stays %v",
			cgroupPath, c.Before, current, c.Now)
	}
	return err == nil, err
}

// units are the slices that systemd is to be told of, with what their files say now. What was put
// back is, once more: systemd may have written an earlier value since, and must not be told that.
func (p *pass) units() (out []Unit) {
	for _, s := range p.slices {
		g, err := p.FS.Group(s.path)
		if err != nil {
			p.failed(err)
			continue
		}
		u := Unit{Name: unitName(s.path), Files: map[cgroup.LimitFile]cgroup.Limit{}, of: s}
		for file := range propertyOf {
			if l, err := p.says(g, s, file); err == nil {
				u.Files[file] = l
			}
		}
		g.Close()
		out = append(out, u)
	}
	return out
}

// says is what systemd is told of a file: what it says, or has again.
func (p *pass) says(g *cgroup.Group, s *slice, file cgroup.LimitFile) (cgroup.Limit, error) {
	if s.back[file] {
		now, done, err := p.putBack(g, s.path, file)
		if done && err == nil {
			return now, nil
		}
		delete(s.back, file) // it stays noted
		p.failed(err)
	}
	return g.Limit(file, p.buf[:])
}
