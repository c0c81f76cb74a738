package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster/deschedule"
	"jettison/internal/cluster/descheduler/planner"
)

// maxFailures consecutive failures end a cycle: the API server is unreachable or rejects all
// requests. So do failures of broken webhooks that took maxWebhookTime together: the plan would
// become stale. Each may take 30 s. The next cycle tries other pods.
const (
	maxFailures    = 3
	maxWebhookTime = 5 * time.Minute
	// After a webhook failed and took this long, the other pods of the owner wait for the next cycle:
	// their labels are the same, so it probably applies to them too.
	slowWebhook = time.Second
)

// cycle makes a plan and carries it out. The error is the reason for an early end.
func (d *descheduler) cycle(ctx context.Context) error {
	began := d.now()
	defer func() { d.metrics.loop.Observe(d.now().Sub(began).Seconds()) }()
	spent := durations{}
	defer d.metrics.observeStrategies(spent)
	plan, err := d.plan(ctx, began, spent)
	if err != nil {
		return err
	}
	for _, s := range plan.Stopped {
		if s.Continued {
			//log: A strategy left out nodes without usage metrics or agent load. The other nodes are
			//  balanced.
			//do: Check the metrics of the node in reason.
			d.o.Log.Warn("descheduling strategy left nodes out", "strategy", s.Strategy, "reason", s.Reason)
			continue
		}
		//log: A strategy ended before it checked all pods, or had nothing to do.
		d.o.Log.Info("descheduling strategy stopped", "strategy", s.Strategy, "reason", s.Reason)
	}
	for _, warning := range plan.Warnings {
		//log: The plan rests on an assumption that may be wrong, such as the scores of a scheduler.
		//do: Describe the scheduler in schedulerProfiles of the policy.
		d.o.Log.Warn("descheduling plan assumes scheduler scores", "warning", warning)
	}
	if d.o.DryRun {
		//log: A dry run made a plan and prints it. No pod is evicted.
		d.o.Log.Info("descheduling plan made", "evictions", len(plan.Evictions), "skipped", len(plan.Skipped),
			"dryRun", true)
		return planner.Print(plan, d.o.Format, d.o.Stdout)
	}
	count, err := d.carryOut(ctx, plan, spent)
	if err != nil {
		return err
	}
	//log: A cycle made a plan and requested its evictions. The keys count the outcomes.
	d.o.Log.Info("descheduling cycle finished", "evictions", len(plan.Evictions),
		"evicted", count[outcomeEvicted], "background", count[outcomeBackground],
		"rejected", count[outcomeRejected]+count[outcomeForbidden], "gone", count[outcomeGone],
		"failed", count[outcomeFailed], "skipped", len(plan.Skipped), "took", d.now().Sub(began))
	switch all := len(plan.Evictions); {
	case all > 0 && count[outcomeForbidden] == all:
		return fmt.Errorf("deschedule: all %d evictions are forbidden: grant the permission to create "+
			"pods/eviction", all)
	case d.o.Interval == 0 && all > 0 && count[outcomeFailed] == all: // no later cycle tries them
		return fmt.Errorf("deschedule: all %d evictions failed: check the webhooks and errors in the log",
			all)
	}
	return nil
}

// carryOut requests the evictions of a plan and counts their outcomes. Evictions in namespaces with
// a broken webhook come last. Those that wait for a slow webhook of their owner count as failed.
func (d *descheduler) carryOut(ctx context.Context, plan *deschedule.Result,
	spent durations) (count map[outcome]int, err error) {
	count = map[outcome]int{}
	failures, webhookFailures, webhookTime := 0, 0, time.Duration(0)
	rest := slices.Clone(plan.Evictions)
	for len(rest) > 0 {
		e := &rest[0]
		rest = rest[1:]
		end, began := spent.timer(d.now)(e.Profile, e.Strategy), d.now()
		result, err := d.evict(ctx, e)
		end()
		count[result]++
		done := count[outcomeEvicted] + count[outcomeBackground]
		if ctx.Err() != nil {
			return nil, fmt.Errorf("deschedule: interrupted after %d of %d evictions: %w", done,
				len(plan.Evictions), context.Cause(ctx))
		}
		if err == nil && result == outcomeFailed {
			took := d.now().Sub(began)
			webhookFailures++
			webhookTime += took
			if rest = namespaceLast(rest, e.Namespace); took >= slowWebhook {
				all := len(rest)
				rest = slices.DeleteFunc(rest, func(other deschedule.Eviction) bool {
					return sameOwner(e, &other)
				})
				count[outcomeFailed] += all - len(rest)
			}
		}
		if webhookTime >= maxWebhookTime {
			return nil, fmt.Errorf("deschedule: webhooks failed for %d evictions after %v, %d of %d done",
				webhookFailures, webhookTime.Round(time.Second), done, len(plan.Evictions))
		}
		if err == nil {
			failures = 0
		} else if failures++; failures >= maxFailures {
			return nil, fmt.Errorf("deschedule: %d consecutive evictions failed, %d of %d done: %w",
				failures, done, len(plan.Evictions), err)
		}
	}
	return count, nil
}

// plan makes the plan for the time now. It adds the durations of the strategies to spent.
func (d *descheduler) plan(ctx context.Context, now time.Time, spent durations) (*deschedule.Result,
	error) {
	s := d.source.snapshot()
	d.history.fill(now, s)
	for _, err := range d.usage.fill(ctx, now, s) {
		//log: Measured usage or agent load could not be read. Strategies leave out nodes without it,
		//  and stop if no node has it.
		//do: Check the metrics API, Prometheus, or the Leases of the agents, as named in error.
		d.o.Log.Warn("usage metrics unavailable", "error", err)
	}
	plan, err := deschedule.PlanTimed(d.o.Policy, s, now, spent.timer(d.now))
	if err != nil {
		return nil, fmt.Errorf("deschedule: plan: %w", err)
	}
	return plan, nil
}

// sameOwner reports whether the pods of two evictions have an owner in common.
func sameOwner(a, b *deschedule.Eviction) bool {
	return a.Namespace == b.Namespace &&
		slices.ContainsFunc(a.Pod.OwnerReferences, func(of metav1.OwnerReference) bool {
			return slices.ContainsFunc(b.Pod.OwnerReferences, func(o metav1.OwnerReference) bool {
				return o.UID == of.UID
			})
		})
}

// namespaceLast returns evictions in their order, but those of a namespace last.
func namespaceLast(all []deschedule.Eviction, namespace string) []deschedule.Eviction {
	var last []deschedule.Eviction
	return append(slices.DeleteFunc(all, func(e deschedule.Eviction) bool {
		if e.Namespace == namespace {
			last = append(last, e)
		}
		return e.Namespace == namespace
	}), last...)
}
