package agent

import (
	"context"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/config"
	"jettison/internal/node/nodedescheduler"
)

// deschedule stops pods that violate their placement, if the configuration enables it: once a
// period, while nothing is short. With a kubelet, which would start them again, and in a dry run
// they are only logged.
func (l *loop) deschedule(ctx context.Context, now time.Time, met []eviction.Met) {
	part, c := l.upkeep.deschedule, l.o.Config
	if len(met) > 0 || len(l.manager.Lives()) > 0 || !part.Due(now, c.Config) {
		return
	}
	acts := c.Deschedule == config.DescheduleAct && !l.o.DryRun && !l.kubelet.FoundLately(now)
	if err := l.looks.Pods(now, l.pods.All()); err != nil {
		l.log.Repeat("reading pods: "+err.Error(),
			func() { l.log.Warn("some pods could not be measured", api.EventSource.Attr(), "error", err) })
	}
	policy := c.Eviction().Policy
	objects := l.objects.Store().Snapshot()
	victims := part.Plan(now, c.Config, &nodedescheduler.Input{
		Pods: l.pods.All(), Objects: objects.Pods, PodObjects: objects.Objects, Members: objects.Members,
		Summary: l.looks.Summary(), Policy: &policy, Self: l.looks.Reader().Self(),
	}, acts)
	for i := range victims {
		part.RecordEviction(now, victims[i].Pod.PodRef, l.evictions.Deschedule(ctx, now, &victims[i]))
		l.publisher.markChanged()
		l.evictions.Changed()
	}
}
