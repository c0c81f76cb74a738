package runner

import (
	"context"
	"fmt"
	"time"

	"jettison/cluster/deschedule"
	"jettison/internal/cluster/descheduler/planner"
)

// mostFailures in a row end a cycle: the API is away, or refuses all that is asked.
const mostFailures = 3

// cycle plans and carries out. The error says why it ended before all was asked for.
func (d *descheduler) cycle(ctx context.Context) error {
	began := d.now()
	defer func() { d.metrics.loop.Observe(d.now().Sub(began).Seconds()) }()
	spent := durations{}
	defer d.metrics.took(spent)
	plan, err := d.plan(ctx, began, spent)
	if err != nil {
		return err
	}
	for _, s := range plan.Stopped {
		d.o.Log.Info("a strategy ends", "strategy", s.Strategy, "reason", s.Reason)
	}
	if d.o.DryRun {
		d.o.Log.Info("planned", "evictions", len(plan.Evictions), "kept", len(plan.Skipped),
			"dryRun", true)
		return planner.Print(plan, d.o.Format, d.o.Stdout)
	}
	count, err := d.carryOut(ctx, plan, spent)
	if err != nil {
		return err
	}
	d.o.Log.Info("planned and asked for", "evictions", len(plan.Evictions), "evicted", count[evicted],
		"background", count[background],
		"refused", count[refused]+count[forbidden], "gone", count[gone], "failed", count[failed], "kept",
		len(plan.Skipped),
		"took", d.now().Sub(began))
	if count[forbidden] > 0 && count[forbidden] == len(plan.Evictions) {
		return fmt.Errorf("deschedule: none of %d evictions may be asked for: the right to create "+
			"pods/eviction is missing", count[forbidden])
	}
	return nil
}

// carryOut asks for the evictions of a plan, and counts what became of them.
func (d *descheduler) carryOut(ctx context.Context, plan *deschedule.Result,
	spent durations) (count map[fate]int, err error) {
	count = map[fate]int{}
	failures := 0
	for i := range plan.Evictions {
		e := &plan.Evictions[i]
		end := spent.watch(d.now)(e.Profile, e.Strategy)
		is, err := d.evict(ctx, e)
		end()
		count[is]++
		done := count[evicted] + count[background]
		if ctx.Err() != nil {
			return nil, fmt.Errorf("deschedule: ended after %d of %d evictions: %w", done,
				len(plan.Evictions), context.Cause(ctx))
		}
		if err == nil {
			failures = 0
		} else if failures++; failures >= mostFailures {
			return nil, fmt.Errorf("deschedule: %d evictions in a row failed, %d of %d are done: %w",
				failures, done, len(plan.Evictions), err)
		}
	}
	return count, nil
}

// plan is the plan of now. What its strategies take is added to spent.
func (d *descheduler) plan(ctx context.Context, now time.Time, spent durations) (*deschedule.Result,
	error) {
	s := d.source.snapshot()
	d.memory.fill(now, s)
	for _, err := range d.figures.fill(ctx, now, s) {
		d.o.Log.Warn("figures of real use are missing", "error", err)
	}
	plan, err := deschedule.PlanTimed(d.o.Policy, s, now, spent.watch(d.now))
	if err != nil {
		return nil, fmt.Errorf("deschedule: plan: %w", err)
	}
	return plan, nil
}
