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

// systemdPause is the pause after systemd did not answer, unless something is written.
const systemdPause = time.Minute

// notePending marks a slice from before a write to it until systemd was updated. If the process dies
// or systemd does not answer, the next pass or process continues from it. Without it, systemd could
// later rewrite a restored limit unnoticed.
const notePending = cgroup.Trusted + "untold"

// resetNotice explains the consequence of a failed update of systemd.
const resetNotice = "the agent retries, and rewrites values that systemd resets meanwhile"

// unitName returns the name of a systemd slice; empty: the cgroup is no slice. A slice's name
// determines its path, so nothing below a pod is mistaken for another's slice.
func unitName(cgroupPath string) string {
	name := path.Base(cgroupPath)
	if !strings.HasSuffix(name, ".slice") || podindex.CgroupOfParent(name) != cgroupPath {
		return ""
	}
	return name
}

// isSlice reports whether systemd must be updated about a cgroup: slices only. A container's scope
// ends with it.
func (p *pass) isSlice(cgroupPath string) bool {
	return p.Tell != nil && unitName(cgroupPath) != ""
}

// slice is a systemd slice with values that systemd does not know.
type slice struct {
	path string
	// wasPending: systemd was out of date before this pass, so the value that it knows is older
	// than the one in the file.
	wasPending bool
	// restored files, with notes that stay until systemd is updated
	restored map[cgroup.LimitFile]bool
}

// noteSlice notes that systemd must be updated about a slice, before a write to it.
func (p *pass) noteSlice(g *cgroup.Group, cgroupPath string) error {
	if !p.isSlice(cgroupPath) || p.pending[cgroupPath] != nil {
		return nil
	}
	if err := g.SetNote(notePending, ""); err != nil {
		return fmt.Errorf("note a pending update of systemd: %w: cgroup not written", err)
	}
	p.addSlice(cgroupPath)
	p.written = true
	return nil
}

// noteWrite notes a write: systemd is updated now, even if it did not answer a moment ago.
func (p *pass) noteWrite(cgroupPath string) { p.written = p.written || p.pending[cgroupPath] != nil }

// readSliceNote notes a slice for which an earlier pass did not update systemd.
func (p *pass) readSliceNote(g *cgroup.Group, cgroupPath string) {
	if !p.isSlice(cgroupPath) || p.pending[cgroupPath] != nil {
		return
	}
	_, owed, err := g.Note(notePending)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		p.failed(err)
	}
	if owed {
		p.addSlice(cgroupPath).wasPending = true
	}
}

func (p *pass) addSlice(cgroupPath string) *slice {
	if p.pending == nil {
		p.pending = map[string]*slice{}
	}
	s := &slice{path: cgroupPath, restored: map[cgroup.LimitFile]bool{}}
	p.pending[cgroupPath] = s
	p.slices = append(p.slices, s)
	return s
}

// wasPending reports whether systemd knew an earlier value than the one at the start of the pass.
func (p *pass) wasPending(cgroupPath string) bool {
	s := p.pending[cgroupPath]
	return s != nil && s.wasPending
}

// updateSystemd updates systemd about the noted slices.
func (p *pass) updateSystemd() {
	if len(p.slices) == 0 {
		return
	}
	if !p.written && time.Since(p.systemdFailed) < systemdPause {
		p.left = true
		return
	}
	p.systemdFailed = time.Time{}
	if err := p.Tell(p.ctx, p.units(), p.confirm); err != nil {
		p.systemdFailed = time.Now()
		p.failed(fmt.Errorf("update slices of systemd: %w: %s", err, resetNotice))
	}
}

// confirm handles systemd's confirmation of a slice: it removes the notes of older and of restored
// values. If a file changed during the update, systemd reset it: its note stays, and the slice is
// updated again.
func (p *pass) confirm(u Unit) {
	g, err := p.FS.Group(u.of.path)
	if err != nil {
		p.failed(err)
		return
	}
	defer g.Close()
	all := true
	for file, sent := range u.Files {
		now, readErr := g.Limit(file, p.buf[:])
		switch {
		case readErr != nil:
			err = errors.Join(err, readErr)
		case now != sent:
			all = false
		case u.of.restored[file]:
			err = errors.Join(err, cgroupundo.Forget(g, file))
		default:
			err = errors.Join(err, cgroupundo.Acknowledge(g, file))
		}
	}
	if all && err == nil {
		err = g.RemoveNote(notePending)
	}
	p.left = p.left || !all
	p.failed(err)
}

// restore restores the previous values of files of a cgroup.
func (p *pass) restore(g *cgroup.Group, cgroupPath string, files ...cgroup.LimitFile) {
	for _, file := range files {
		_, _, err := p.putBack(g, cgroupPath, file)
		p.failed(err)
	}
}

// putBack restores the previous value of one file, and returns the resulting value. In a slice the
// note stays until systemd is updated. If systemd resets the file meanwhile to the value that it
// knows, the note identifies that as the agent's value, and it is restored again.
func (p *pass) putBack(g *cgroup.Group, cgroupPath string, file cgroup.LimitFile) (now cgroup.Limit,
	done bool, err error) {
	c, isNoted, err := cgroupundo.Find(g, file)
	if err != nil || !isNoted {
		return c.Now, false, err
	}
	if may, err := p.mayPutBack(g, cgroupPath, &c); err != nil || !may {
		return c.Now, false, err
	}
	if err := p.noteSlice(g, cgroupPath); err != nil {
		return c.Now, false, err
	}
	changed, err := c.Restore()
	if err != nil {
		return c.Now, false, err
	}
	if changed {
		p.r.Restored++
		p.noteWrite(cgroupPath)
	}
	if s := p.pending[cgroupPath]; s != nil {
		s.restored[file] = true
		return c.Now, true, nil
	}
	return c.Now, true, cgroupundo.Forget(g, file)
}

// mayPutBack reports whether a value may be restored. With a kubelet, limits of the cgroups above
// pods belong to it. A memory.max below usage is not restored.
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
		err = fmt.Errorf("memory.max of /%s not restored to %v: pods use %d, it stays %v",
			cgroupPath, c.Before, current, c.Now)
	}
	return err == nil, err
}

// units returns the slices for systemd with the values of their files. Restored files are restored
// again: systemd may have written an earlier value since, which must not be confirmed.
func (p *pass) units() (out []Unit) {
	for _, s := range p.slices {
		g, err := p.FS.Group(s.path)
		if err != nil {
			p.failed(err)
			continue
		}
		u := Unit{Name: unitName(s.path), Files: map[cgroup.LimitFile]cgroup.Limit{}, of: s}
		for file := range propertyOf {
			if l, err := p.valueFor(g, s, file); err == nil {
				u.Files[file] = l
			}
		}
		g.Close()
		out = append(out, u)
	}
	return out
}

// valueFor returns the value of a file for systemd: the current or the restored one.
func (p *pass) valueFor(g *cgroup.Group, s *slice, file cgroup.LimitFile) (cgroup.Limit, error) {
	if s.restored[file] {
		now, done, err := p.putBack(g, s.path, file)
		if done && err == nil {
			return now, nil
		}
		delete(s.restored, file) // the note stays
		p.failed(err)
	}
	return g.Limit(file, p.buf[:])
}
