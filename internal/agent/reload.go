package agent

import (
	"slices"
	"time"

	"jettison/internal/agent/reload"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/config"

	"jettison/eviction"
	"jettison/stats"
)

// onReloaded applies a configuration that was read again, if it changed and fits this node. All
// parts keep their state: observations, evictions in progress and hold-offs do not restart. Fields
// that are read only at start keep their values (tag start of the fields of config.Config).
func (l *loop) onReloaded(now time.Time, r *reload.Result) {
	next := l.upkeep.reload.OnResult(r, l.checkFit)
	l.publisher.markChanged()
	if next == nil {
		return
	}
	if watchesMemory(l.o.Config.Config) && !watchesMemory(next.Config) {
		logUnwatched(l.log, next.From)
	}
	l.o.Config = next
	decides := next.Eviction()
	l.manager.Reconfigure(decides)
	l.looks.WatchTasks(l.manager.Watches(stats.SignalPIDAvailable))
	l.upkeep.unknown.Reconfigure(decides.Policy)
	l.gate.admission.Reconfigure(decides.Policy, l.node())
	l.relief.disk.Reconfigure(next.Collect(), time.Duration(next.ContainerGCPeriod),
		time.Duration(next.ImageGCPeriod))
	l.onObjects() // whether limits on local storage count
	l.evictions.Advise(l.hardBytes())
	l.log.Reset()
	l.warmUp(now) // the memory of a decision by it is mapped from now on
}

// logUnwatched logs that no threshold watches memory, at start and once after a reload. A kubelet
// of rke2 or k3s gets only disk thresholds (k3s pkg/daemons/agent), which the agent then uses.
func logUnwatched(log *logthrottle.Logger, from string) {
	//log: No threshold is configured for memory.available. The agent evicts no pod for memory, so the
	//  kernel's OOM killer ends leaking pods.
	//do: Configure evictionHard for memory.available.
	log.Warn("no threshold for memory.available",
		"config", from)
}

// watchesMemory reports whether a threshold for the node's memory exists.
func watchesMemory(c *config.Config) bool {
	return slices.ContainsFunc(c.Thresholds,
		func(t eviction.Threshold) bool { return t.Signal == stats.SignalMemoryAvailable })
}
