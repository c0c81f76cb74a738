package priorities

import (
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/stats/read"
)

// patience is the time that a pod may run with an unknown priority before the warning: a client
// receives its object later than the runtime.
const patience = 5 * time.Minute

// Options are the options of New.
type Options struct {
	Policy eviction.Policy
	Self   func() string // the cgroup of this process; empty: unknown
	Log    *logthrottle.Logger
}

// Part keeps the count for the loop. It counts on demand, after a change, and never during a look.
type Part struct {
	o            Options
	pods         read.Index // nil: no list of the runtime yet
	objects      map[string]*eviction.Pod
	counts       *api.UnknownPriority // nil: out of date
	neverVictims int                  // pods that are never victims, counted with counts
	// first Tick with unprotected pods; zero: none
	unprotectedSince time.Time
	warned           bool // the warning was logged
	resolved         bool // the end of the problem was logged
}

// New creates a Part without pods.
func New(o Options) *Part { return &Part{o: o} }

// Reconfigure sets another policy.
func (p *Part) Reconfigure(policy eviction.Policy) { p.o.Policy, p.counts = policy, nil }

// OnPods sets the runtime's pods.
func (p *Part) OnPods(pods read.Index) { p.pods, p.counts = pods, nil }

// OnObjects sets the known objects, by UID.
func (p *Part) OnObjects(objects map[string]*eviction.Pod) { p.objects, p.counts = objects, nil }

// Count returns the current counts; nil: no list of the runtime yet. The result is immutable.
func (p *Part) Count() *api.UnknownPriority {
	if p.counts == nil && p.pods != nil {
		var n api.UnknownPriority
		n, p.neverVictims = count(&p.o.Policy, p.pods, p.objects, p.o.Self())
		p.counts = &n
	}
	return p.counts
}

// Protected returns the number of running pods that are never victims.
func (p *Part) Protected() int {
	p.Count()
	return p.neverVictims
}

// Start warns if pods are unprotected at the start.
func (p *Part) Start() {
	if n := p.Count(); n != nil && n.Unprotected > 0 {
		p.warn(n)
	}
}

// Tick warns if pods are unprotected for too long, and logs once that none are left.
func (p *Part) Tick(now time.Time) {
	if p.resolved {
		return
	}
	n := p.Count()
	switch {
	case n == nil:
	case n.Unprotected == 0 && p.warned:
		p.resolved = true
		//log: Each pod of unknown priority is protected by another rule now. unknown counts the remaining ones.
		p.o.Log.Info("no unprotected pod of unknown priority left", api.EventPod.Attr(),
			"unknown", n.Pods)
	case n.Unprotected == 0:
		p.unprotectedSince = time.Time{}
	case p.warned:
	case p.unprotectedSince.IsZero():
		p.unprotectedSince = now
	case now.Sub(p.unprotectedSince) >= patience:
		p.warn(n)
	}
}

func (p *Part) warn(n *api.UnknownPriority) {
	p.warned = true
	//log: The agent does not know the priority of some running pods. A critical pod among the
	//  unprotected ones may be evicted before a leaking pod.
	//do: Provide priorities: staticPodPath, the kubelet's feature gate PodsAPI, jettison-bridge or another
	//  client of the socket. The key advice has the details.
	p.o.Log.Warn("pods of unknown priority found", api.EventPod.Attr(),
		"unknown", n.Pods, "unprotected", n.Unprotected, "advice", Advice)
}
