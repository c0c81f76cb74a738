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

// Writer reads, decides and writes. Its methods block as long as the kernel does, and are for one
// goroutine at a time.
type Writer struct {
	FS         *cgroup.FS
	CgroupRoot string // the kubelet's: pods are below it
	// Kubelet looks for one: right before anything is written, where that was not done a moment ago
	// (lookHolds).
	Kubelet func() bool
	Tell    Teller // nil: systemd is not told

	// when systemd did not answer, if it has not since
	refused   time.Time
	takeCache func(g *cgroup.Group, bytes uint64) error // nil: the kernel does
}

// Change is one value that was written.
type Change struct {
	Cgroup   string
	File     cgroup.LimitFile
	From, To cgroup.Limit
	// Target is what it is to become in the end; To is above it where more is used.
	Target uint64
}

// Result is what one pass did.
type Result struct {
	Limited  []Change // cgroups above all pods
	Written  int      // files that memory is protected by, or containers throttled
	Restored int      // files that have again what they had before
	Pods     int      // that were found
	Unknown  int      // of these, how many are not BestEffort, and nobody has told what they request
	Beside   bool     // a kubelet has come: nothing was written since it was seen
	Left     Left     // of what was to be put back
	Err      error
}

// pass is one pass of a Writer.
type pass struct {
	*Writer
	ctx   context.Context
	r     Result
	until time.Time // for so long it counts that no kubelet was seen
	// not all was done: something that is to be put back is noted still, or systemd is to be told
	left    bool
	written bool // a slice of systemd's was, or is about to be
	// of systemd's that it is to be told of, in the order in which they were come upon
	slices []*slice
	owed   map[string]*slice
	errs   []error
	buf    [256]byte
}

func (w *Writer) begin(ctx context.Context) *pass { return &pass{Writer: w, ctx: ctx} }

// end tells systemd what its slices have now.
func (p *pass) end() Result {
	p.tell()
	p.r.Err = errors.Join(p.errs...)
	return p.r
}

// lookHolds is for how long it counts that no kubelet was seen, and where a search takes longer
// than that, for as long: so a pass that writes to a thousand cgroups looks for no more than half
// of its time. One that has just been started writes to cgroups later than that: it reads its files
// and asks the runtime first. A write may take seconds (memory.high); after it one is looked for
// again.
const lookHolds = 100 * time.Millisecond

// allowed looks for a kubelet, unless that was done a moment ago. What is another's is not written
// to, for the rest of the pass.
func (p *pass) allowed() bool {
	if began := time.Now(); !p.r.Beside && !began.Before(p.until) {
		p.r.Beside = p.Kubelet()
		now := time.Now()
		p.until = now.Add(max(lookHolds, now.Sub(began)))
	}
	return !p.r.Beside && p.ctx.Err() == nil
}

// failed keeps what went wrong with a cgroup that is there still.
func (p *pass) failed(err error) {
	if err == nil || errors.Is(err, cgroup.ErrVanished) {
		return
	}
	if p.left = true; len(p.errs) < 8 {
		p.errs = append(p.errs, err)
	}
}

// Limit brings the cgroups above all pods to their targets, or nearer.
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
		p.recall(g, root)
		for _, f := range []struct {
			file   cgroup.LimitFile
			target stats.Opt[uint64]
		}{{cgroup.FileMemoryMax, t.MemoryMax}, {cgroup.FilePIDsMax, t.PIDsMax},
			{cgroup.FileCPUWeight, t.CPUWeight}} {
			if f.target.OK {
				p.failed(p.bring(g, root, f.file, f.target.V))
			}
		}
		g.Close()
	}
}

// bring brings one file to its target.
func (p *pass) bring(g *cgroup.Group, root string, file cgroup.LimitFile, target uint64) error {
	c, err := cgroupundo.Read(g, file)
	if err != nil {
		return off(err, root)
	}
	target = cgroupundo.Cut(file, cgroup.Limit{Bytes: target}).Bytes
	if file == cgroup.FileMemoryMax {
		p.failed(p.makeRoom(g, c.Now, target))
	}
	value, err := p.next(g, &c, file, target)
	if err != nil || c.Now == value || !p.allowed() {
		return err
	}
	// once more, for the search for a kubelet takes long
	if value, err = p.next(g, &c, file, target); err != nil {
		return err
	}
	if err := p.owes(g, root); err != nil {
		return err
	}
	from := c.Now
	changed, err := c.Set(value, p.isUntold(root))
	if changed {
		p.wrote(root)
		p.r.Limited = append(p.r.Limited, Change{root, file, from, c.Now, target})
	}
	return err
}

// next is what a file is to say now on its way to a target.
func (p *pass) next(g *cgroup.Group, c *cgroupundo.Control, file cgroup.LimitFile,
	target uint64) (cgroup.Limit, error) {
	if file != cgroup.FileMemoryMax {
		return cgroup.Limit{Bytes: target}, nil
	}
	current, err := g.MemoryCurrent(p.buf[:])
	value, _ := lower(target, c.Now, current)
	return cgroupundo.Cut(file, value), err
}

// off says that a controller is, where a file is missing.
func off(err error, cgroupPath string) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: its controller is off in /%s", err, cgroupPath)
	}
	return err
}

// protections are the files that protection writes.
var protections = []cgroup.LimitFile{cgroup.FileMemoryMin, cgroup.FileMemoryLow,
	cgroup.FileMemoryHigh}

// Protect protects what pods request, and puts back what was written for pods that are not to be
// protected any more.
func (w *Writer) Protect(ctx context.Context, k Known, b Budget) Result {
	p := w.begin(ctx)
	pods, paths, err := gather(p.FS, p.CgroupRoot, k)
	p.failed(err)
	p.r.Pods = len(pods)
	for i := range pods {
		if _, may := protectionOf(pods[i].QOSClass); may && !pods[i].Request.OK {
			p.r.Unknown++
		}
	}
	p.settle(paths, Plan(pods, b))
	return p.end()
}

// Undo puts back what Limit and Protect have written, by this process or one before it: limits,
// what the cgroups above all pods were limited to, but for a memory.max that would be below what is
// used, and none of it where a kubelet is here; protection, all of that. Protection comes first: it
// is put back whoever is here, and the search for a kubelet, which limits wait for, may use up all
// the time. Systemd is told last, for it may not answer.
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
	r.Left.Word = p.left
	return r
}

func (p *pass) unlimit() {
	for _, root := range podindex.TopRoots(p.CgroupRoot) {
		g, err := p.FS.Group(root)
		if err != nil {
			p.failed(err)
			continue
		}
		p.recall(g, root)
		p.restore(g, root, cgroup.FilePIDsMax, cgroup.FileCPUWeight, cgroup.FileMemoryMax)
		g.Close()
	}
}

// settle brings cgroups to their settings; files without one have again what they had before. to
// nil: there are none.
func (p *pass) settle(paths []string, to Settings) {
	for i, path := range paths {
		if err := p.ctx.Err(); err != nil {
			if to != nil || p.isNoted(paths[i:]) {
				p.failed(fmt.Errorf("%d cgroups of pods were not gone through: %w", len(paths)-i, err))
			}
			return
		}
		g, err := p.FS.Group(path)
		if err != nil {
			p.failed(err)
			continue
		}
		p.recall(g, path)
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

// isNoted reports whether any protection is noted of cgroups that a pass has no time left for:
// without a note nothing is to be put back. It only reads, for as long again at most; what it does
// not come to may be noted.
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
		p.recall(g, path)
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

// set brings one file of a cgroup to its setting.
func (p *pass) set(g *cgroup.Group, path string, file cgroup.LimitFile, s Setting) error {
	c, err := cgroupundo.Read(g, file)
	if err != nil {
		return off(err, path)
	}
	value := s.with(c.Before)
	if value == c.Before {
		p.restore(g, path, file)
		return nil
	}
	if c.Now == cgroupundo.Cut(file, value) || !p.allowed() {
		return nil
	}
	if err := p.owes(g, path); err != nil {
		return err
	}
	changed, err := c.Set(value, p.isUntold(path))
	if changed {
		p.wrote(path)
		p.r.Written++
	}
	return err
}
