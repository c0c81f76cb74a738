package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"jettison/eviction"
	"jettison/internal/node/config"
	"jettison/reclaim"
	"jettison/stats"
)

const (
	// pullWait is how long disk pressure waits in all for sandboxes that have no container yet, whose
	// image may just have been pulled.
	pullWait = 10 * time.Second
	// lateMost calls in a row that are not answered in time end a pass: each has its whole limit, and
	// what they were about waits now.
	lateMost = 3
	// probeLimit is how long the runtime has after a step that failed to show that it is there.
	probeLimit = 2 * time.Second
	// freshLeast and freshMost bound how long lists are taken for those of now, where a step is no
	// matter of milliseconds: ten times as long as they took, so that a node with thousands of
	// containers is not listed all the time.
	freshLeast = 100 * time.Millisecond
	freshMost  = 2 * time.Second
	// aheadMost steps' pods are listed at once: of all that are dead, ten thousand containers would
	// lie there beside the plan.
	aheadMost = 500
)

// putOffMost passes in a row of a kind are put off because the runtime is slow; the next one is
// made. A runtime that has more than it can tell in time has it because nothing was removed.
const putOffMost = 3

// besideLeast and besideMost bound how long a pass takes it for granted that no kubelet has
// started, right before files go: ten times as long as the look took. Before what goes through the
// runtime alone it is besideMost.
const (
	besideLeast = 100 * time.Millisecond
	besideMost  = 2 * time.Second
)

// errLost ends a pass.
var errLost = errors.New("the runtime does not answer")

// Pass looks, plans and carries the plan out. It comes back early if ctx ends, with what was done.
func (c *Collector) Pass(ctx context.Context, what What, trigger reclaim.Trigger) Result {
	return c.perform(ctx, request{what: what, trigger: trigger, act: true})
}

// Plan looks and plans, and does no more.
func (c *Collector) Plan(ctx context.Context, what What, trigger reclaim.Trigger) Result {
	return c.perform(ctx, request{what: what, trigger: trigger})
}

// request is for one pass.
type request struct {
	what    What
	trigger reclaim.Trigger
	act     bool
	wishes  []eviction.Wish // of a disk that is short; nil: none asks
	// ended, asked between two steps: something more important waits. nil: nothing does.
	ended func() bool
}

// perform is one pass.
func (c *Collector) perform(ctx context.Context, q request) (r Result) {
	r = Result{What: q.what, Trigger: q.trigger, Began: c.now()}
	defer func() { r.Took = c.now().Sub(r.Began) }()
	if r.Observed = c.observes(); !q.act {
		r.Observed = DryRun
	}
	if r.Err = c.barrier.wait(ctx); r.Err != nil {
		return r
	}
	v, err := c.view(ctx, q.what, q.trigger)
	if err != nil {
		r.Err = fmt.Errorf("look at what there is: %w", err)
		return r
	}
	r.Odd, r.Unseen = v.problems, v.noImages
	if v.noImages != nil {
		q.what &^= Images // what is remembered of them stays as it is
	}
	r.Plan = c.asked(v, q)
	if q.what&Images != 0 {
		c.records = r.Plan.Records
		if err := c.store.saveImages(c.records); err != nil {
			r.Odd = append(r.Odd, err.Error())
		}
	}
	r.Looked = c.now().Sub(r.Began)
	switch {
	case r.Observed != "":
		if q.act {
			c.finish(ctx, q, v, &r)
		}
		return r
	case v.slow != "" && q.trigger == reclaim.Periodic && !c.o.Once && c.putOff[q.what] < putOffMost:
		c.putOff[q.what]++
		r.PutOff = v.slow
		return r
	}
	delete(c.putOff, q.what)
	// The steps look for themselves, at lists as long as these.
	v.look = &reclaim.Look{ImageFs: v.look.ImageFs, PutOff: v.look.PutOff}
	x := &run{c: c, ctx: ctx, q: q, v: v, r: &r, mute: map[string]bool{}}
	x.measure()
	x.all()
	x.measure()
	if q.what&Images != 0 {
		c.pulled(v.time, r.Plan.Pulling != "" || x.pulling)
		if err := c.store.saveImages(c.records); err != nil { // without those that went
			r.Odd = append(r.Odd, err.Error())
		}
	}
	r.Odd = append(r.Odd, x.odd...)
	return r
}

// finish brings to its end what an eviction has begun: where passes only plan, too. A kubelet does
// not know what was put aside: it would stay for ever.
func (c *Collector) finish(ctx context.Context, q request, v *view, r *Result) {
	x := &run{c: c, ctx: ctx, q: q, v: v, r: r, mute: map[string]bool{}, beside: r.Observed}
	for i := range r.Plan.Steps {
		if s := &r.Plan.Steps[i]; begun(s) {
			x.one(s)
		}
	}
}

// begun: a step goes on with what an eviction has begun.
func begun(s *reclaim.Step) bool { return s.Action == reclaim.RemoveVolumes }

// pulled notes whether images were put off for a young sandbox.
func (c *Collector) pulled(now time.Time, putOff bool) {
	switch {
	case !putOff:
		c.pulling = time.Time{}
	case c.pulling.IsZero():
		c.pulling = now
	}
}

// observes says why nothing may be removed; empty: it may. A kubelet is looked for before each
// pass.
func (c *Collector) observes() string {
	kubelet, why := false, ""
	if c.o.Mode == config.ModeUnset {
		kubelet, why = c.beside()
	}
	switch {
	case c.o.Mode.Acts(kubelet):
		return ""
	case kubelet:
		return "a kubelet collects the garbage of this node: " + why
	}
	return "gc: " + string(c.o.Mode)
}

// asked is what of the whole plan was asked for.
func (c *Collector) asked(v *view, q request) reclaim.Plan {
	policy, defaults := c.o.Policy, reclaim.DefaultPolicy()
	if q.what&Containers == 0 {
		policy.Container = defaults.Container
	}
	if q.what&Images == 0 {
		policy.Image = defaults.Image
	}
	p := policy.Plan(v.time, v.look)
	if q.what&Containers == 0 {
		p.Left = nil
	}
	steps := p.Steps[:0]
	for _, s := range p.Steps {
		if kindOf(s.Action)&q.what != 0 {
			steps = append(steps, s)
		}
	}
	p.Steps = steps
	if q.wishes != nil {
		p.Steps = c.relieving(p.Steps, q.wishes)
	}
	p.Steps = c.backoff.ordered(p.Steps)
	return p
}

func kindOf(a reclaim.Action) What {
	if a == reclaim.RemoveImage {
		return Images
	}
	return Containers
}

// run carries out one plan.
type run struct {
	c      *Collector
	ctx    context.Context
	q      request
	v      *view
	r      *Result
	odd    []string
	over   string        // why no further step is taken; empty: they are
	beside string        // why none is but those that were begun
	images string        // why no further image is removed; empty: they are
	late   int           // calls in a row that were not answered in time
	waited time.Duration // in all, for sandboxes to get their containers
	// pulling: images were put off for a young sandbox that the plan has not seen.
	pulling bool
	at      int   // the step of the plan that is taken
	lists   *view // as last listed
	listed  int   // how often
	// containers that did not tell their log: each costs a whole limit, and is asked once
	mute map[string]bool

	listsFor time.Duration // how long they count
	besideAt time.Time     // when a kubelet was last looked for
	lookTook time.Duration // that did
}

// all takes the steps in their order. What is left of the plan after one that ends it is skipped.
func (x *run) all() {
	steps := x.r.Plan.Steps
	x.r.Done = make([]Done, 0, len(steps))
	for i := range steps {
		x.at = i
		x.one(&steps[i])
	}
	target := x.r.Plan.Available
	if !target.OK || !x.v.look.ImageFs.OK {
		return
	}
	for i := range x.r.Plan.Spare { // sizes are predictions
		if have, err := x.available(); err != nil || have >= target.V ||
			x.stopped(&x.r.Plan.Spare[i]) != "" {
			break
		}
		x.one(&x.r.Plan.Spare[i])
	}
	if have, err := x.available(); err == nil {
		before := x.v.look.ImageFs.V
		if x.r.Plan.Short = ""; have < target.V && x.over == "" && x.beside == "" && x.images == "" {
			x.r.Plan.Short = reclaim.Insufficient(before, have-min(have, before.AvailableBytes))
		}
	}
}

// one takes a step, unless something speaks against it, and notes what became of it.
func (x *run) one(s *reclaim.Step) {
	c, d := x.c, Done{Step: s}
	if d.Why = x.against(s); d.Why != "" {
		d.Outcome = Skipped
		x.r.Done = append(x.r.Done, d)
		return
	}
	began, before, measured := c.now(), uint64(0), false
	if s.Action != reclaim.RemoveLogs && s.Action != reclaim.RemoveVolumes { // which tell themselves
		have, err := x.available()
		before, measured = have, err == nil
	}
	d.Outcome, d.Why, d.Err = x.do(s, &d)
	d.Took = c.now().Sub(began)
	if measured && d.Outcome == Removed {
		if have, err := x.available(); err == nil {
			d.Freed = stats.Some(have - min(have, before))
		}
	}
	switch d.Outcome {
	case Failed:
		x.failed(&d)
	case Removed:
		c.paces.learn(&d)
		fallthrough
	case WasGone:
		delete(c.backoff, keyOf(s))
		x.forget(s)
	}
	if !errors.Is(d.Err, context.DeadlineExceeded) {
		x.late = 0
	}
	x.r.Done = append(x.r.Done, d)
}

// failed remembers a failure, unless it says nothing of the step: ctx is over, or the runtime is
// gone.
func (x *run) failed(d *Done) {
	switch {
	case x.ctx.Err() != nil:
	case x.lost():
		x.over, x.r.Err = errLost.Error(), errLost
	default:
		x.c.backoff.failed(x.c.now(), keyOf(d.Step), d.Err)
		if x.late++; x.late >= lateMost && errors.Is(d.Err, context.DeadlineExceeded) {
			x.over = fmt.Sprintf("%d calls in a row were not answered in time", x.late)
			x.r.Err = errors.New(x.over)
		}
	}
}

// against says why a step is not taken; empty: nothing speaks against it. It waits while an
// eviction is under way.
func (x *run) against(s *reclaim.Step) string {
	if why := x.stopped(s); why != "" {
		return why
	}
	pressure := x.q.trigger == reclaim.DiskPressure
	if at, f, ok := x.c.backoff.until(x.c.now(), keyOf(s), pressure); !ok {
		return fmt.Sprintf("it failed %d times, and is tried again from %s on: %s", f.times,
			at.UTC().Format(time.RFC3339), f.text)
	}
	if s.Action == reclaim.RemoveImage {
		if x.images != "" {
			return x.images
		}
		if target := x.r.Plan.Available; s.Reason == reclaim.Space && target.OK {
			if have, err := x.available(); err == nil && have >= target.V {
				return "enough is free by now"
			}
		}
	}
	_ = x.c.barrier.wait(x.ctx) // its error is that of ctx
	return x.stopped(s)
}

// stopped says why the run is over for a step; empty: it is not.
func (x *run) stopped(s *reclaim.Step) string {
	if err := x.ctx.Err(); err != nil && x.over == "" {
		x.over, x.r.Err = "the pass was ended before", err
	}
	if x.over == "" && x.q.ended != nil && x.q.ended() {
		x.over = "the pass was ended before, for a disk that is short"
	}
	if x.over != "" || begun(s) {
		return x.over
	}
	return x.kubelet(besideMost)
}

// kubelet looks whether one has come, if the last look is older than that, and ends the run then.
// It says why the run is over.
func (x *run) kubelet(within time.Duration) string {
	if now := x.c.now(); x.beside == "" && now.Sub(x.besideAt).Abs() >= within {
		x.beside = x.c.observes()
		x.besideAt = x.c.now()
		x.lookTook = x.besideAt.Sub(now)
	}
	return x.beside
}

// filesStay says why no file may go: a kubelet has come since the step began, which may have waited
// for the runtime.
func (x *run) filesStay() string {
	return x.kubelet(min(max(10*x.lookTook, besideLeast), besideMost))
}

// lost reports whether the runtime does not answer any more.
func (x *run) lost() bool {
	ctx, cancel := context.WithTimeout(x.ctx, probeLimit)
	defer cancel()
	_, err := x.c.o.Runtime.Version(ctx)
	return err != nil && x.ctx.Err() == nil
}

// available is what the image file system has left now.
func (x *run) available() (uint64, error) {
	if x.c.imageDir == "" {
		return 0, errors.New("the image file system is not known")
	}
	fs, err := x.c.statfs(x.c.imageDir)
	return fs.AvailableBytes, err
}

// measure notes what the file systems that something is removed from have, first before, then after
// the steps.
func (x *run) measure() {
	first := x.r.Filesystems == nil
	for _, dir := range []string{x.c.imageDir, x.c.o.PodLogsDir} {
		if dir == "" {
			continue
		}
		fs, err := x.c.statfs(dir)
		if err != nil {
			continue
		}
		known := false
		for i := range x.r.Filesystems {
			if f := &x.r.Filesystems[i]; f.Device == fs.Device {
				known, f.After = true, fs.AvailableBytes
			}
		}
		if first && !known {
			x.r.Filesystems = append(x.r.Filesystems, Change{Path: dir, Device: fs.Device,
				Before: fs.AvailableBytes, After: fs.AvailableBytes})
		}
	}
}

// fresh are the runtime's lists as of now; recent: those of a moment ago will do.
func (x *run) fresh(recent bool) (*view, error) {
	if recent && x.lists != nil && x.lists.of == nil && x.recent() {
		return x.lists, nil
	}
	return x.list(nil)
}

// freshOf are those of a moment ago of what is alive, and of all that a pod has.
func (x *run) freshOf(uid string) (*view, error) {
	if x.lists != nil && (x.lists.of == nil || x.lists.of[uid]) && x.recent() {
		return x.lists, nil
	}
	of := map[string]bool{uid: true}
	for i := x.at; i < min(x.at+aheadMost, len(x.r.Plan.Steps)); i++ {
		of[x.r.Plan.Steps[i].PodUID] = true
	}
	return x.list(of)
}

func (x *run) recent() bool { return x.c.now().Sub(x.lists.time).Abs() < x.listsFor }

// list lists anew, what is alive and what pods have that are asked for; nil: all.
func (x *run) list(of map[string]bool) (*view, error) {
	now := x.c.now()
	// before others are made: both, of ten thousand containers, are more memory than the agent has
	x.lists = nil
	v := &view{look: &reclaim.Look{}, time: now, of: of}
	if err := x.c.lists(x.ctx, v); err != nil {
		return nil, err
	}
	// From its end on, and as long again as it took: else a runtime that takes longer than that is
	// listed before each step.
	v.time = x.c.now()
	took := v.time.Sub(now) - v.waited
	x.listed++
	x.lists, x.listsFor = v, max(min(max(10*took, freshLeast), freshMost), took)
	return v, nil
}

// forget takes what is gone off the lists of a moment ago. An image that is pulled again is a new
// one (kubelet pkg/kubelet/images/image_gc_manager.go freeImage).
func (x *run) forget(s *reclaim.Step) {
	if s.Action == reclaim.RemoveImage {
		delete(x.c.records, s.ID)
	}
	if x.lists == nil {
		return
	}
	switch l := x.lists.look; s.Action {
	case reclaim.RemoveContainer:
		l.Containers = slices.DeleteFunc(l.Containers,
			func(c reclaim.Container) bool { return c.ID == s.ID })
	case reclaim.RemoveSandbox:
		l.Sandboxes = slices.DeleteFunc(l.Sandboxes, func(o reclaim.Sandbox) bool { return o.ID == s.ID })
	}
}

// call bounds a call that changes something.
func (x *run) call(do func(ctx context.Context) error) error {
	ctx := x.ctx
	if limit := x.c.limit; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return do(ctx)
}
