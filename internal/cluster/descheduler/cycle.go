package descheduler

import (
	"context"
	"fmt"
	"time"

	"jettison/cluster/deschedule"
	"jettison/internal/descheduling"
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
		d.o.Log.Info("planned", "evictions", len(plan.Evictions), "kept", len(plan.Skipped), "dryRun", true)
		return descheduling.Print(plan, d.o.Format, d.o.Stdout)
	}
	failures, done := 0, 0
	for i := range plan.Evictions {
		e := &plan.Evictions[i]
		end := spent.watch(d.now)(e.Profile, e.Strategy)
		err := d.evict(ctx, e)
		end()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("deschedule: ended after %d of %d evictions: %w", done, len(plan.Evictions), context.Cause(ctx))
		case err == nil:
			failures = 0
			done++
		default:
			if failures++; failures >= mostFailures {
				return fmt.Errorf("deschedule: %d evictions in a row failed, %d of %d are done: %w", failures, done, len(plan.Evictions), err)
			}
		}
	}
	d.o.Log.Info("planned and asked for", "evictions", len(plan.Evictions), "evicted", done, "kept", len(plan.Skipped),
		"took", d.now().Sub(began))
	return nil
}

// plan is the plan of now. What its strategies take is added to spent.
func (d *descheduler) plan(ctx context.Context, now time.Time, spent durations) (*deschedule.Result, error) {
	s := d.source.snapshot()
	d.memory.fill(now, s)
	for _, err := range d.figures.fill(ctx, now, s) {
		d.o.Log.Warn("figures of real use are missing", "error", err)
	}
	plan, err := deschedule.Watched(d.o.Policy, s, now, spent.watch(d.now))
	if err != nil {
		return nil, fmt.Errorf("deschedule: plan: %w", err)
	}
	return plan, nil
}
