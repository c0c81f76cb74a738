package priorities

import (
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/stats/read"
)

// patience is how long a pod may run until it is missed that nobody tells its priority: a client
// hears of it later than the runtime.
const patience = 5 * time.Minute

// Options of New.
type Options struct {
	Policy eviction.Policy
	Self   func() string // the cgroup of this process; empty: unknown
	Log    *logthrottle.Logger
}

// Part is the loop's. It counts when it is asked and something has changed, never in a look.
type Part struct {
	o       Options
	pods    read.Index // nil: the runtime has told none yet
	objects map[string]*eviction.Pod
	counted *api.UnknownPriority // nil: not as it is now
	never   int                  // pods that are never victims, as of counted
	// since when Tick has found some that nothing protects; zero: there is none
	since  time.Time
	said   bool // that there are some
	mended bool // that there are none any more
}

// New makes a Part that knows of no pod.
func New(o Options) *Part { return &Part{o: o} }

// Reconfigure takes another policy.
func (p *Part) Reconfigure(policy eviction.Policy) { p.o.Policy, p.counted = policy, nil }

// OnPods takes the runtime's pods.
func (p *Part) OnPods(pods read.Index) { p.pods, p.counted = pods, nil }

// OnObjects takes the objects that are known, by UID.
func (p *Part) OnObjects(objects map[string]*eviction.Pod) { p.objects, p.counted = objects, nil }

// Count is how many there are now; nil: the runtime has told no pods yet. It is not changed
// afterwards.
func (p *Part) Count() *api.UnknownPriority {
	if p.counted == nil && p.pods != nil {
		var n api.UnknownPriority
		n, p.never = count(&p.o.Policy, p.pods, p.objects, p.o.Self())
		p.counted = &n
	}
	return p.counted
}

// Protected is how many pods that run are never victims.
func (p *Part) Protected() int {
	p.Count()
	return p.never
}

// Start warns where there are some at the start.
func (p *Part) Start() {
	if n := p.Count(); n != nil && n.Unprotected > 0 {
		p.warn(n)
	}
}

// Tick warns where there are some for too long, and says once that there are none any more.
func (p *Part) Tick(now time.Time) {
	if p.mended {
		return
	}
	n := p.Count()
	switch {
	case n == nil:
	case n.Unprotected == 0 && p.said:
		p.mended = true
		p.o.Log.Info("no pod of unknown priority is left that nothing protects", api.EventPod.Attr(),
			"unknown", n.Pods)
	case n.Unprotected == 0:
		p.since = time.Time{}
	case p.said:
	case p.since.IsZero():
		p.since = now
	case now.Sub(p.since) >= patience:
		p.warn(n)
	}
}

func (p *Part) warn(n *api.UnknownPriority) {
	p.said = true
	p.o.Log.Warn("pods of unknown priority: a critical one among those that nothing protects may be "+
		"evicted before a pod that leaks", api.EventPod.Attr(),
		"unknown", n.Pods, "unprotected", n.Unprotected, "mend", Ways)
}
