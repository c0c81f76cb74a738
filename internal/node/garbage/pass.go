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
	// pullWait bounds the total wait of a pass under disk pressure for sandboxes without a container,
	// which may use a newly pulled image.
	pullWait = 10 * time.Second
	// maxTimeouts timeouts in a row end a pass: each costs a whole deadline.
	maxTimeouts = 3
	// probeLimit is the timeout of the call that checks the runtime after a failed step.
	probeLimit = 2 * time.Second
	// freshMin and freshMax bound how long lists stay fresh for steps that allow it: ten times as long
	// as the lists took, so that a node with thousands of containers is not listed all the time.
	freshMin = 100 * time.Millisecond
	freshMax = 2 * time.Second
	// maxScope bounds the pods of the next steps in one list: a list of all pods could hold ten
	// thousand dead containers in memory next to the plan.
	maxScope = 500
)

// maxPostponed bounds the passes of a kind postponed in a row for a slow runtime. The next pass
// runs anyway: the runtime may be slow because garbage was not removed.
const maxPostponed = 3

// kubeletFreshMin and kubeletFreshMax bound how long the result of a search for a kubelet stays
// fresh before files are removed: ten times as long as the search took. Before removals through the
// runtime alone the bound is kubeletFreshMax.
const (
	kubeletFreshMin = 100 * time.Millisecond
	kubeletFreshMax = 2 * time.Second
)

// errLost ends a pass.
var errLost = errors.New("the runtime does not answer")

// Pass takes a look, plans and carries out the plan. It returns early with the steps done if ctx
// ends.
func (c *Collector) Pass(ctx context.Context, what Kind, trigger reclaim.Trigger) Result {
	return c.perform(ctx, request{what: what, trigger: trigger, act: true})
}

// Plan takes a look and plans, without carrying out the plan.
func (c *Collector) Plan(ctx context.Context, what Kind, trigger reclaim.Trigger) Result {
	return c.perform(ctx, request{what: what, trigger: trigger})
}

// request describes one pass.
type request struct {
	what    Kind
	trigger reclaim.Trigger
	act     bool
	wishes  []eviction.ReclaimRequest // for a disk that is short; nil: none
	// mustEnd reports, between two steps, whether a more important request waits. May be nil.
	mustEnd func() bool
}

// perform runs one pass.
func (c *Collector) perform(ctx context.Context, q request) (r Result) {
	r = Result{What: q.what, Trigger: q.trigger, Began: c.now()}
	defer func() { r.Took = c.now().Sub(r.Began) }()
	if r.PlanOnly = c.planOnlyReason(); !q.act {
		r.PlanOnly = DryRun
	}
	if r.Err = c.barrier.wait(ctx); r.Err != nil {
		return r
	}
	may := q.act && r.PlanOnly == "" && q.trigger == reclaim.Periodic && !c.o.Once
	// after a slow list the next passes take no list at all
	if p := c.postponed[q.what]; may && p.passes > 0 && p.passes < maxPostponed {
		r.Postponed = c.postpone(q.what, p.reason)
		return r
	}
	v, err := c.view(ctx, q.what, q.trigger)
	if err != nil {
		r.Err = fmt.Errorf("read containers, sandboxes and images: %w", err)
		return r
	}
	r.Warnings, r.ImagesErr = v.problems, v.imagesErr
	if v.imagesErr != nil {
		q.what &^= Images // their records stay unchanged
	}
	r.Plan = c.selectSteps(v, q)
	if q.what&Images != 0 {
		c.records = r.Plan.Records
		if err := c.store.saveImages(c.records); err != nil {
			r.Warnings = append(r.Warnings, err.Error())
		}
	}
	r.Looked = c.now().Sub(r.Began)
	switch {
	case r.PlanOnly != "":
		if q.act {
			c.finishEvictions(ctx, q, v, &r)
		}
		return r
	case may && v.slow != "" && c.postponed[q.what].passes < maxPostponed:
		r.Postponed = c.postpone(q.what, v.slow)
		return r
	}
	delete(c.postponed, q.what)
	// The steps read their own lists, which are as long as these: free the memory.
	v.look = &reclaim.Look{ImageFs: v.look.ImageFs, Postponed: v.look.Postponed}
	x := &run{c: c, ctx: ctx, q: q, v: v, r: &r, noLogPath: map[string]bool{}}
	x.measure()
	x.runSteps()
	x.measure()
	if q.what&Images != 0 {
		c.pulled(v.time, r.Plan.Pulling != "" || x.pulling)
		if err := c.store.saveImages(c.records); err != nil { // without the removed images
			r.Warnings = append(r.Warnings, err.Error())
		}
	}
	r.Warnings = append(r.Warnings, x.warnings...)
	return r
}

// postponed are passes of a kind postponed in a row.
type postponed struct {
	passes int
	reason string
}

// postpone counts a postponed pass. It returns the reason.
func (c *Collector) postpone(what Kind, reason string) string {
	c.postponed[what] = postponed{c.postponed[what].passes + 1, reason}
	return reason
}

// finishEvictions finishes removals that an eviction began, even where passes only plan. A kubelet
// does not know the volumes moved aside, so they would stay forever.
func (c *Collector) finishEvictions(ctx context.Context, q request, v *view, r *Result) {
	x := &run{c: c, ctx: ctx, q: q, v: v, r: r, noLogPath: map[string]bool{}, kubeletFound: r.PlanOnly}
	for i := range r.Plan.Steps {
		if s := &r.Plan.Steps[i]; finishesEviction(s) {
			x.runStep(s)
		}
	}
}

// finishesEviction reports whether a step continues a removal that an eviction began.
func finishesEviction(s *reclaim.Step) bool { return s.Action == reclaim.RemoveVolumes }

// pulled records whether image removals were postponed for a young sandbox.
func (c *Collector) pulled(now time.Time, postponed bool) {
	switch {
	case !postponed:
		c.pulling = time.Time{}
	case c.pulling.IsZero():
		c.pulling = now
	}
}

// planOnlyReason returns why garbage may not be removed; empty: it may. It searches for a kubelet.
func (c *Collector) planOnlyReason() string {
	kubelet, why := false, ""
	if c.o.Mode == config.ModeUnset {
		kubelet, why = c.findKubelet()
	}
	switch {
	case c.o.Mode.Acts(kubelet):
		return ""
	case kubelet:
		return "a kubelet collects garbage on this node: " + why
	}
	return "gc: " + string(c.o.Mode)
}

// selectSteps plans and selects the steps that the request is for, in the order of execution.
func (c *Collector) selectSteps(v *view, q request) reclaim.Plan {
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

func kindOf(a reclaim.Action) Kind {
	if a == reclaim.RemoveImage {
		return Images
	}
	return Containers
}

// run is the execution of one plan.
type run struct {
	c             *Collector
	ctx           context.Context
	q             request
	v             *view
	r             *Result
	warnings      []string
	endReason     string        // why no further step runs; empty: steps run
	kubeletFound  string        // why only steps that finish evictions run; empty: all run
	imagesBlocked string        // why no further image is removed; empty: images are removed
	timeouts      int           // timeouts in a row
	waited        time.Duration // in total, for sandboxes to get their containers
	// pulling means that image removals were postponed for a young sandbox that the plan has not seen.
	pulling bool
	index   int   // index of the current step in the plan
	lists   *view // last lists
	listed  int   // number of lists
	// containers with a failed status call for the log path: each costs a whole deadline, so only one
	// call is made
	noLogPath map[string]bool

	listsFor         time.Duration // time for which lists stay fresh
	kubeletCheckedAt time.Time     // time of the last search for a kubelet
	kubeletCheckTook time.Duration // duration of that search
}

// runSteps runs the steps in their order. After a step that ends the run, the rest is skipped.
func (x *run) runSteps() {
	steps := x.r.Plan.Steps
	x.r.Done = make([]Done, 0, len(steps))
	for i := range steps {
		x.index = i
		x.runStep(&steps[i])
	}
	target := x.r.Plan.Available
	if !target.OK || !x.v.look.ImageFs.OK {
		return
	}
	for i := range x.r.Plan.Spare { // sizes are predictions
		if have, err := x.available(); err != nil || have >= target.V ||
			x.stopReason(&x.r.Plan.Spare[i]) != "" {
			break
		}
		x.runStep(&x.r.Plan.Spare[i])
	}
	if have, err := x.available(); err == nil {
		before := x.v.look.ImageFs.V
		if x.r.Plan.Short = ""; have < target.V && x.endReason == "" && x.kubeletFound == "" &&
			x.imagesBlocked == "" {
			x.r.Plan.Short = reclaim.Insufficient(before, have-min(have, before.AvailableBytes))
		}
	}
}

// runStep runs a step, unless there is a reason to skip it, and records the outcome.
func (x *run) runStep(s *reclaim.Step) {
	c, d := x.c, Done{Step: s}
	if d.Why = x.skipReason(s); d.Why != "" {
		d.Outcome = Skipped
		x.r.Done = append(x.r.Done, d)
		return
	}
	began, before, measured := c.now(), uint64(0), false
	// the other two report the freed bytes themselves
	if s.Action != reclaim.RemoveLogs && s.Action != reclaim.RemoveVolumes {
		have, err := x.available()
		before, measured = have, err == nil
	}
	d.Outcome, d.Why, d.Err = x.execute(s, &d)
	d.Took = c.now().Sub(began)
	if measured && d.Outcome == Removed {
		if have, err := x.available(); err == nil {
			d.Freed = stats.Some(have - min(have, before))
		}
	}
	switch d.Outcome {
	case Failed:
		x.recordFailure(&d)
	case Removed:
		c.paces.learn(&d)
		fallthrough
	case WasGone:
		delete(c.backoff, keyOf(s))
		x.dropRemoved(s)
	}
	if !errors.Is(d.Err, context.DeadlineExceeded) {
		x.timeouts = 0
	}
	x.r.Done = append(x.r.Done, d)
}

// recordFailure records a failure, unless its cause is not the step: ctx ended, or the runtime does
// not answer.
func (x *run) recordFailure(d *Done) {
	switch {
	case x.ctx.Err() != nil:
	case x.lost():
		x.endReason, x.r.Err = errLost.Error(), errLost
	default:
		x.c.backoff.failed(x.c.now(), keyOf(d.Step), d.Err)
		if x.timeouts++; x.timeouts >= maxTimeouts && errors.Is(d.Err, context.DeadlineExceeded) {
			x.endReason = fmt.Sprintf("%d runtime calls in a row timed out", x.timeouts)
			x.r.Err = errors.New(x.endReason)
		}
	}
}

// skipReason returns why a step is skipped; empty: it runs. It blocks while an eviction is in
// progress.
func (x *run) skipReason(s *reclaim.Step) string {
	if why := x.stopReason(s); why != "" {
		return why
	}
	pressure := x.q.trigger == reclaim.DiskPressure
	if at, f, ok := x.c.backoff.until(x.c.now(), keyOf(s), pressure); !ok {
		return fmt.Sprintf("failed %d times, next attempt after %s: %s", f.times,
			at.UTC().Format(time.RFC3339), f.message)
	}
	if s.Action == reclaim.RemoveImage {
		if x.imagesBlocked != "" {
			return x.imagesBlocked
		}
		if target := x.r.Plan.Available; s.Reason == reclaim.Space && target.OK {
			if have, err := x.available(); err == nil && have >= target.V {
				return "enough space is free already"
			}
		}
	}
	_ = x.c.barrier.wait(x.ctx) // stopReason reports the error of ctx
	return x.stopReason(s)
}

// stopReason returns why the run ended for a step; empty: it has not ended.
func (x *run) stopReason(s *reclaim.Step) string {
	if err := x.ctx.Err(); err != nil && x.endReason == "" {
		x.endReason, x.r.Err = "pass ended early", err
	}
	if x.endReason == "" && x.q.mustEnd != nil && x.q.mustEnd() {
		x.endReason = "pass ended early for a disk that is short, or for a new configuration"
	}
	if x.endReason != "" || finishesEviction(s) {
		return x.endReason
	}
	return x.checkKubelet(kubeletFreshMax)
}

// checkKubelet searches for a kubelet if the last search is older than within. It returns why the
// run ended, or an empty string if no kubelet was found.
func (x *run) checkKubelet(within time.Duration) string {
	if now := x.c.now(); x.kubeletFound == "" && now.Sub(x.kubeletCheckedAt).Abs() >= within {
		x.kubeletFound = x.c.planOnlyReason()
		x.kubeletCheckedAt = x.c.now()
		x.kubeletCheckTook = x.kubeletCheckedAt.Sub(now)
	}
	return x.kubeletFound
}

// filesBlocked returns why no file may be removed: a kubelet has started during the step, which may
// have waited for the runtime.
func (x *run) filesBlocked() string {
	return x.checkKubelet(min(max(10*x.kubeletCheckTook, kubeletFreshMin), kubeletFreshMax))
}

// lost reports whether the runtime no longer answers.
func (x *run) lost() bool {
	ctx, cancel := context.WithTimeout(x.ctx, probeLimit)
	defer cancel()
	_, err := x.c.o.Runtime.Version(ctx)
	return err != nil && x.ctx.Err() == nil
}

// available returns the available bytes of the image file system.
func (x *run) available() (uint64, error) {
	if x.c.imageDir == "" {
		return 0, errors.New("the image file system is unknown")
	}
	fs, err := x.c.statfs(x.c.imageDir)
	return fs.AvailableBytes, err
}

// measure records the available bytes of the file systems with removals: on the first call before,
// on the second after the steps.
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

// fresh returns the runtime's current lists; recent accepts lists that are still fresh.
func (x *run) fresh(recent bool) (*view, error) {
	if recent && x.lists != nil && x.lists.scope == nil && x.recent() {
		return x.lists, nil
	}
	return x.list(nil)
}

// freshOf returns fresh lists of everything alive, and of all containers and sandboxes of a pod.
func (x *run) freshOf(uid string) (*view, error) {
	if x.lists != nil && (x.lists.scope == nil || x.lists.scope[uid]) && x.recent() {
		return x.lists, nil
	}
	of := map[string]bool{uid: true}
	for i := x.index; i < min(x.index+maxScope, len(x.r.Plan.Steps)); i++ {
		of[x.r.Plan.Steps[i].PodUID] = true
	}
	return x.list(of)
}

func (x *run) recent() bool { return x.c.now().Sub(x.lists.time).Abs() < x.listsFor }

// list reads new lists of everything alive, and of everything of the given pods; nil: of all pods.
func (x *run) list(of map[string]bool) (*view, error) {
	now := x.c.now()
	// free the old lists first: two lists of ten thousand containers exceed the agent's memory
	x.lists = nil
	v := &view{look: &reclaim.Look{}, time: now, scope: of}
	if err := x.c.lists(x.ctx, v); err != nil {
		return nil, err
	}
	// The lists are fresh from their end on, and at least as long as they took. Otherwise a slow
	// runtime would be listed before each step.
	v.time = x.c.now()
	took := v.time.Sub(now) - v.waited
	x.listed++
	x.lists, x.listsFor = v, max(min(max(10*took, freshMin), freshMax), took)
	return v, nil
}

// dropRemoved removes the object of a step from the fresh lists. An image that is pulled again is a
// new one (kubelet pkg/kubelet/images/image_gc_manager.go freeImage).
func (x *run) dropRemoved(s *reclaim.Step) {
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

// call runs a call that changes something, with the Collector's timeout.
func (x *run) call(do func(ctx context.Context) error) error {
	ctx := x.ctx
	if limit := x.c.limit; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return do(ctx)
}
