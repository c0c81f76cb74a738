package limits

import (
	"fmt"
	"path"
	"strings"
	"time"

	"jettison/cgroup"
	"jettison/internal/noted"
)

// tellAgain is how long after systemd did not answer it is left alone, unless something is written.
const tellAgain = time.Minute

// noteOwed is on a slice of systemd's from before a file of it is written until systemd was told: whoever dies between, or is not answered,
// leaves it to the next pass or process. Without it systemd would write a limit again that is put back, and nobody would know.
const noteOwed = cgroup.Trusted + "untold"

// untold is what comes of it where systemd does not answer. A pass that only puts back, at the start, may be the last of its process.
const untold = "the next pass tells it, or the next start where nothing is to be written; what it sets back, only passes write again"

// isSlice: systemd is told of these alone. A container's scope ends with it.
func (p *pass) isSlice(cgroupPath string) bool {
	return p.Tell != nil && strings.HasSuffix(cgroupPath, ".slice")
}

// owes notes, before a slice is written to, that systemd is to be told of it.
func (p *pass) owes(g *cgroup.Group, cgroupPath string) error {
	if !p.isSlice(cgroupPath) {
		return nil
	}
	if p.written = true; p.owed[cgroupPath] {
		return nil
	}
	if err := g.SetNote(noteOwed, ""); err != nil {
		return fmt.Errorf("note that systemd is to be told: %w: without that nothing is written", err)
	}
	p.remember(cgroupPath)
	return nil
}

// recall sees whether systemd was not told of a slice that was written to before.
func (p *pass) recall(g *cgroup.Group, cgroupPath string) {
	if !p.isSlice(cgroupPath) || p.owed[cgroupPath] {
		return
	}
	if _, owed, err := g.Note(noteOwed); err == nil && owed {
		p.remember(cgroupPath)
	}
}

func (p *pass) remember(cgroupPath string) {
	if p.owed == nil {
		p.owed = map[string]bool{}
	}
	p.owed[cgroupPath] = true
	p.slices = append(p.slices, cgroupPath)
}

// tell tells systemd of the slices that it is to be told of.
func (p *pass) tell() {
	if len(p.slices) == 0 || !p.written && time.Since(p.refused) < tellAgain {
		return
	}
	if err := p.Tell(p.ctx, p.units()); err != nil {
		p.refused = time.Now()
		p.errs = append(p.errs, fmt.Errorf("tell systemd: %w: %s", err, untold))
		return
	}
	p.refused = time.Time{}
	for _, at := range p.slices {
		if g, err := p.FS.Group(at); err == nil {
			p.failed(g.RemoveNote(noteOwed))
			g.Close()
		}
	}
}

// restore puts back what files of a cgroup had before.
func (p *pass) restore(g *cgroup.Group, cgroupPath string, files ...cgroup.LimitFile) {
	if !noted.Any(g, files...) {
		return
	}
	if err := p.owes(g, cgroupPath); err != nil {
		p.failed(err)
		return
	}
	changed, err := noted.Restore(g, files...)
	p.r.Restored += len(changed)
	p.failed(err)
}

// units are the slices that systemd is to be told of, with what their files say now.
func (p *pass) units() (out []Unit) {
	for _, at := range p.slices {
		g, err := p.FS.Group(at)
		if err != nil {
			continue
		}
		u := Unit{Name: path.Base(at), Files: map[cgroup.LimitFile]cgroup.Limit{}}
		for file := range propertyOf {
			if l, err := g.Limit(file, p.buf[:]); err == nil {
				u.Files[file] = l
			}
		}
		g.Close()
		out = append(out, u)
	}
	return out
}
