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

// onReloaded takes a configuration that was read again, if it is another one and this node can have
// it. Each part goes on with what it knows: nothing that was first observed, is under way or is
// held back begins anew. What is read at the start stays (start, in the fields of config.Config).
func (l *loop) onReloaded(now time.Time, r *reload.Result) {
	next := l.upkeep.reload.OnResult(r, l.fits)
	l.shown.changed()
	if next == nil {
		return
	}
	if watchesMemory(l.o.Config.Config) && !watchesMemory(next.Config) {
		sayUnwatched(l.log, next.From)
	}
	l.o.Config = next
	decides := next.Eviction()
	l.manager.Reconfigure(decides)
	l.looks.WatchTasks(l.manager.Watches(stats.SignalPIDAvailable))
	l.upkeep.unknown.Reconfigure(decides.Policy)
	l.gate.admission.Reconfigure(decides.Policy, l.node())
	l.relief.disk.Reconfigure(next.Collect(), time.Duration(next.ContainerGCPeriod),
		time.Duration(next.ImageGCPeriod))
	l.onObjects() // whether they tell limits on local storage that count
	l.evictions.Advise(l.hardBytes())
	l.log.Afresh()
	l.warmUp(now) // what a decision takes by it is in memory from now on
}

// sayUnwatched is for the start, and once where another configuration brings it about. A kubelet of
// rke2 or k3s is told thresholds of disks alone (k3s pkg/daemons/agent), and the agent goes by
// them.
func sayUnwatched(log *logthrottle.Logger, from string) {
	log.Warn("no threshold is for memory.available: a pod that leaks is the kernel's to end",
		"config", from)
}

// watchesMemory reports whether a threshold is for the memory of the node.
func watchesMemory(c *config.Config) bool {
	return slices.ContainsFunc(c.Thresholds,
		func(t eviction.Threshold) bool { return t.Signal == stats.SignalMemoryAvailable })
}
