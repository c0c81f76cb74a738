package agent

import (
	"time"

	"jettison/internal/reload"
	"jettison/stats"
)

// onReloaded takes a configuration that was read again, if it is another one and this node can have it. Each part goes on with what it
// knows: nothing that was first observed, is under way or is held back begins anew. What is read at the start stays (start, in the fields
// of config.Config).
func (l *loop) onReloaded(now time.Time, r *reload.Result) {
	next := l.upkeep.reload.OnResult(r, l.fits)
	l.shown.changed()
	if next == nil {
		return
	}
	l.o.Config = next
	decides := next.Eviction()
	l.manager.Reconfigure(decides)
	l.looks.WatchTasks(l.manager.Watches(stats.SignalPIDAvailable))
	l.upkeep.unknown.Reconfigure(decides.Policy)
	l.gate.admission.Reconfigure(decides.Policy, l.node())
	l.relief.disk.Reconfigure(next.Collect(), time.Duration(next.ContainerGCPeriod), time.Duration(next.ImageGCPeriod))
	l.onObjects() // whether they tell limits on local storage that count
	l.evictions.Advise(l.hardBytes())
	l.log.Afresh()
	l.warmUp(now) // what a decision takes by it is in memory from now on
}
