package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"jettison/cgroup"
	"jettison/internal/node/cgroupundo"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// Writer reads, decides and writes. Its methods block while the kernel does, and are for one
// goroutine at a time.
type Writer struct {
	FS         *cgroup.FS
	CgroupRoot string // the kubelet's; it contains the pods
	// Kubelet searches for a kubelet. It is called immediately before a write, unless the last
	// search was within searchLifetime.
	Kubelet func() bool
	Tell    Updater // nil: systemd is not updated

	// time of systemd's last failure; zero: it answered since
	systemdFailed    time.Time
	reclaimPageCache func(g *cgroup.Group, bytes uint64) error // nil: memory.reclaim
}

// Change is a written value.
type Change struct {
	Cgroup   string
	File     cgroup.LimitFile
	From, To cgroup.Limit
	// Target is the final value. To is above it if usage is higher.
	Target uint64
}

// Result is the result of a pass.
type Result struct {
	Limited      []Change  // cgroups above all pods
	Written      int       // files that protect memory or throttle containers
	Restored     int       // files with their previous value again
	Pods         int       // pods that were found
	Skipped      Skipped   // values of these pods that were not written, or not in full
	KubeletFound bool      // a kubelet was found, and the pass wrote nothing after that
	Left         Remaining // settings that could not be restored
	Err          error
}

// pass is the state of one pass of a Writer.
type pass struct {
	*Writer
	ctx              context.Context
	r                Result
	searchValidUntil time.Time // until then no new search for a kubelet is needed
	// incomplete: notes remain, or systemd must be updated
	left    bool
	written bool // a slice of systemd was written, or is about to be
	// slices with values that systemd does not know, in the order in which they were found
	slices  []*slice
	pending map[string]*slice
	errs    []error
	buf     [256]byte
}

func (w *Writer) begin(ctx context.Context) *pass { return &pass{Writer: w, ctx: ctx} }

// end updates systemd and returns the result.
func (p *pass) end() Result {
	p.updateSystemd()
	p.r.Err = errors.Join(p.errs...)
	return p.r
}

// searchLifetime is the time for which the last search for a kubelet is valid. If a search takes longer,
// its duration is used, so that a pass over a thousand cgroups searches for at most half of its
// time. A kubelet that just started writes cgroups later than that: it reads its files and queries
// the runtime first. A write may take seconds (memory.high), so a new search follows it.
const searchLifetime = 100 * time.Millisecond

// allowed reports whether the pass may write: no kubelet runs, by a search that is still valid, and
// ctx has not ended. After a kubelet was found, it returns false for the rest of the pass.
func (p *pass) allowed() bool {
	if began := time.Now(); !p.r.KubeletFound && !began.Before(p.searchValidUntil) {
		p.r.KubeletFound = p.Kubelet()
		now := time.Now()
		p.searchValidUntil = now.Add(max(searchLifetime, now.Sub(began)))
	}
	return !p.r.KubeletFound && p.ctx.Err() == nil
}

// failed records an error, unless the cgroup vanished.
func (p *pass) failed(err error) {
	if err == nil || errors.Is(err, cgroup.ErrVanished) {
		return
	}
	if p.left = true; len(p.errs) < 8 {
		p.errs = append(p.errs, err)
	}
}

// Limit sets the limits of the cgroups above all pods, or moves them closer to their targets.
func (w *Writer) Limit(ctx context.Context, t Targets) Result {
	p := w.begin(ctx)
	p.limit(t)
	return p.end()
}

func (p *pass) limit(t Targets) {
	for _, root := range podindex.TopRoots(p.CgroupRoot) {
		g, err := p.FS.Group(root)
		if err != nil {
			p.failed(err)
			continue
		}
		p.readSliceNote(g, root)
		for _, f := range []struct {
			file   cgroup.LimitFile
			target stats.Opt[uint64]
		}{{cgroup.FileMemoryMax, t.MemoryMax}, {cgroup.FilePIDsMax, t.PIDsMax},
			{cgroup.FileCPUWeight, t.CPUWeight}} {
			if f.target.OK {
				p.failed(p.approach(g, root, f.file, f.target.V))
			}
		}
		g.Close()
	}
}

// approach moves one file to its target.
func (p *pass) approach(g *cgroup.Group, root string, file cgroup.LimitFile, target uint64) error {
	c, err := cgroupundo.Read(g, file)
	if err != nil {
		return explainMissing(err, root)
	}
	target = cgroupundo.Cut(file, cgroup.Limit{Bytes: target}).Bytes
	if file == cgroup.FileMemoryMax {
		p.failed(p.reclaimCache(g, c.Now, target))
	}
	value, err := p.next(g, &c, file, target)
	if err != nil || c.Now == value || !p.allowed() {
		return err
	}
	// again, because the search for a kubelet takes long
	if value, err = p.next(g, &c, file, target); err != nil {
		return err
	}
	if err := p.noteSlice(g, root); err != nil {
		return err
	}
	from := c.Now
	changed, err := c.Set(value, p.wasPending(root))
	if changed {
		p.noteWrite(root)
		p.r.Limited = append(p.r.Limited, Change{root, file, from, c.Now, target})
	}
	return err
}

// next returns the next value of a file on the way to its target.
func (p *pass) next(g *cgroup.Group, c *cgroupundo.Control, file cgroup.LimitFile,
	target uint64) (cgroup.Limit, error) {
	if file != cgroup.FileMemoryMax {
		return cgroup.Limit{Bytes: target}, nil
	}
	current, err := g.MemoryCurrent(p.buf[:])
	value, _ := lower(target, c.Now, current)
	return cgroupundo.Cut(file, value), err
}

// explainMissing explains a missing file: its controller is not enabled.
func explainMissing(err error, cgroupPath string) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: its controller is not enabled in /%s", err, cgroupPath)
	}
	return err
}

// protections are the files that protection writes.
var protections = []cgroup.LimitFile{cgroup.FileMemoryMin, cgroup.FileMemoryLow,
	cgroup.FileMemoryHigh}

// Protect protects the memory that pods request, and restores the cgroups of pods that are not to
// be protected any more.
func (w *Writer) Protect(ctx context.Context, k Known, b Budget) Result {
	p := w.begin(ctx)
	pods, paths, err := gather(p.FS, p.CgroupRoot, k)
	p.failed(err)
	p.r.Pods = len(pods)
	plan := Plan(pods, b)
	p.r.Skipped = skipped(pods, plan)
	p.settle(paths, plan)
	return p.end()
}

// Undo restores values that Limit and Protect wrote, in this process or an earlier one. limits: the
// limits of the cgroups above all pods, except for a memory.max below usage, and none with a
// kubelet. protection: all protection. Protection comes first: it does not depend on a kubelet, and
// the search for a kubelet, which limits need, may use up the time. Systemd is updated last,
// because it may not answer.
func (w *Writer) Undo(ctx context.Context, limits, protection bool) Result {
	p := w.begin(ctx)
	if protection {
		_, paths, err := gather(p.FS, p.CgroupRoot, Known{})
		p.failed(err)
		p.settle(paths, nil)
		p.r.Left.Protection, p.left = p.left, false
	}
	if limits {
		p.unlimit()
		p.r.Left.Limits, p.left = p.left, false
	}
	r := p.end()
	r.Left.Systemd = p.left
	return r
}

func (p *pass) unlimit() {
	for _, root := range podindex.TopRoots(p.CgroupRoot) {
		g, err := p.FS.Group(root)
		if err != nil {
			p.failed(err)
			continue
		}
		p.readSliceNote(g, root)
		p.restore(g, root, cgroup.FilePIDsMax, cgroup.FileCPUWeight, cgroup.FileMemoryMax)
		g.Close()
	}
}

// settle applies settings to cgroups. Files without a setting get their previous value. nil: no
// settings.
func (p *pass) settle(paths []string, to Settings) {
	for i, path := range paths {
		if err := p.ctx.Err(); err != nil {
			if to != nil || p.isNoted(paths[i:]) {
				p.failed(fmt.Errorf("%d pod cgroups not processed: %w", len(paths)-i, err))
			}
			return
		}
		g, err := p.FS.Group(path)
		if err != nil {
			p.failed(err)
			continue
		}
		p.readSliceNote(g, path)
		for _, file := range protections {
			if s, ok := to[path][file]; ok {
				p.failed(p.set(g, path, file, s))
			} else {
				p.restore(g, path, file)
			}
		}
		g.Close()
	}
}

// isNoted reports whether cgroups that a pass has no time left for have a note of protection.
// Without a note nothing is to be restored. It only reads, for endLimit at most; it returns true if
// it cannot read them all.
func (p *pass) isNoted(paths []string) bool {
	until := time.Now().Add(endLimit)
	for _, path := range paths {
		if !time.Now().Before(until) {
			return true
		}
		g, err := p.FS.Group(path)
		if errors.Is(err, cgroup.ErrVanished) {
			continue
		}
		if err != nil {
			return true
		}
		p.readSliceNote(g, path)
		is := slices.ContainsFunc(protections, func(file cgroup.LimitFile) bool {
			_, is, err := cgroupundo.Find(g, file)
			return is || err != nil && !errors.Is(err, cgroup.ErrVanished)
		})
		if g.Close(); is {
			return true
		}
	}
	return false
}

// set applies a setting to one file of a cgroup.
func (p *pass) set(g *cgroup.Group, path string, file cgroup.LimitFile, s Setting) error {
	c, err := cgroupundo.Read(g, file)
	if err != nil {
		return explainMissing(err, path)
	}
	value := s.with(c.Before)
	if value == c.Before {
		p.restore(g, path, file)
		return nil
	}
	value = cgroupundo.Cut(file, value)
	if c.Now == value {
		return nil
	}
	if ok, err := p.hasRoom(g, &c, value); err != nil || !ok || !p.allowed() {
		return err
	}
	// again, because the search for a kubelet takes long
	if ok, err := p.hasRoom(g, &c, value); err != nil || !ok {
		return err
	}
	if err := p.noteSlice(g, path); err != nil {
		return err
	}
	changed, err := c.Set(value, p.wasPending(path))
	if changed {
		p.noteWrite(path)
		p.r.Written++
	}
	return err
}

// hasRoom reports whether a value may be written to a file. A memory.high is not lowered to less
// than an eighth above the memory that the cgroup uses, because the kernel would reclaim and throttle
// immediately. The next pass tries again. A memory.high may always be raised.
func (p *pass) hasRoom(g *cgroup.Group, c *cgroupundo.Control, value cgroup.Limit) (bool, error) {
	if c.File != cgroup.FileMemoryHigh || !c.Now.Unlimited && value.Bytes >= c.Now.Bytes {
		return true, nil
	}
	current, err := g.MemoryCurrent(p.buf[:])
	if err != nil || value.Bytes >= stats.SaturatingAdd(current, current/8) {
		return err == nil, err
	}
	p.r.Skipped.InUse++
	return false, nil
}
