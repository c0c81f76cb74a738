package garbage

import (
	"fmt"
	"slices"
	"time"

	"jettison/eviction"
	"jettison/internal/repeat"
	"jettison/reclaim"
	"jettison/stats/read"
)

const (
	closeLimit   = 2 * time.Second // for a pass to end when the agent does
	relieveAgain = time.Minute     // between two attempts to bring a disk back without an eviction
	relieveLimit = 5 * time.Minute // for one, after which the look that there is decides
)

// PartOptions are those of NewPart. Its functions are called in the loop's goroutine.
type PartOptions struct {
	Log   *repeat.Logger
	Named *Named
	// Mode is the config's gc: act, observe, or empty: observe beside a kubelet.
	Mode    string
	Kubelet func() bool // one is on this node
	// Remeasure has what pods take of disks measured anew, after a pass that was to relieve one. nil: it is not measured.
	Remeasure func()
}

// Part is a loop's share in garbage collection: what passes say is logged, and a disk that is short has garbage collected before a pod
// goes for it. All of it is for the loop's goroutine. Without Start it collects nothing.
type Part struct {
	o         PartOptions
	collector *Collector // nil: no garbage is collected
	ask       func(Relief)
	results   chan Result
	ended     chan struct{} // closed when no result is taken any more

	last    attempt
	holding bool              // the collector waits for evictions
	said    map[string]string // what was last logged of passes, by what and kind
}

// attempt is one to bring back what is short by collecting garbage.
type attempt struct {
	asked time.Time                     // zero: there was none
	done  time.Time                     // before asked: it is under way
	what  map[eviction.Reclaimable]bool // that was asked for
}

// NewPart makes a Part that collects nothing yet.
func NewPart(o PartOptions) *Part {
	return &Part{o: o, results: make(chan Result), ended: make(chan struct{}), said: map[string]string{}}
}

// Start begins to collect garbage: passes that are due, and those that a disk asks for. What is known of pods, and the mode, are the Part's.
// The returned function ends it; it is called once, when no result is taken any more.
func (p *Part) Start(o Options, s Schedule) (stop func()) {
	o.Known, o.Mode = p.o.Named.Known, p.o.Mode
	collector, err := New(o)
	if err != nil {
		p.o.Log.Warn("no garbage is collected", "error", err)
		return func() {}
	}
	if missing := collector.Missing(); len(missing) > 0 {
		p.o.Log.Info("garbage collection starts anew: nothing is remembered from before", "missing", missing)
	}
	results, ended := p.results, p.ended
	runner := Start(collector, s, func(r Result) {
		select {
		case results <- r:
		case <-ended:
		}
	})
	p.collector, p.ask = collector, runner.Relieve
	return func() {
		close(p.ended)
		if err := runner.Close(closeLimit); err != nil {
			p.o.Log.Warn("stopping", "error", err)
			return // it still uses the collector
		}
		collector.Close()
	}
}

// Results is where passes hand over what they have done. It is for OnResult.
func (p *Part) Results() <-chan Result { return p.results }

// OnResult takes the result of a pass.
func (p *Part) OnResult(now time.Time, r *Result) {
	if r.Trigger == reclaim.DiskPressure {
		p.last.done = now
		if p.o.Remeasure != nil {
			p.o.Remeasure()
		}
	}
	log, fields := p.o.Log, r.Fields()
	switch {
	case r.Err != nil || r.Unseen != nil || r.Count(Failed) > 0:
		fields = append(fields, "problems", shortened(r.Problems()))
		log.Repeat("garbage: "+r.What.String(), func() { log.Warn("not all garbage could be collected", fields...) })
	case r.PutOff != "":
		log.Repeat("garbage put off: "+r.PutOff, func() { log.Info("garbage collection is put off", fields...) })
	case len(r.Done) > 0 || r.Trigger == reclaim.DiskPressure:
		log.Info("garbage collected", fields...)
	}
	p.news(r)
}

// news logs what a pass that did not fail says beside its steps, whenever that is something else than after the last one of its kind: what
// is wrong, what stays because it is no pod's that is known, and what would go where nothing may.
func (p *Part) news(r *Result) {
	if r.Err != nil || r.PutOff != "" {
		return
	}
	var problems, left []string
	if r.Unseen == nil && r.Count(Failed) == 0 { // else they were said
		problems = shortened(r.Problems())
	}
	for _, l := range r.Plan.Left {
		left = append(left, l.String())
	}
	left = shortened(left)
	observed := ""
	if r.Observed != "" && r.Observed != DryRun && len(r.Plan.Steps) > 0 {
		observed = r.Observed
	}
	for _, line := range []struct {
		key, now string
		log      func()
	}{
		{"problems", joined(problems), func() { p.o.Log.Warn("garbage collection", "what", r.What.String(), "problems", problems) }},
		{"left", joined(left), func() { p.o.Log.Info("garbage collection leaves alone what nobody knows", "left", left) }},
		{"observed", observed, func() { p.o.Log.Info("garbage is not collected here", r.Fields()...) }},
	} {
		key := line.key + " " + r.What.String()
		switch before := p.said[key]; {
		case line.now == before:
		case line.now == "":
			delete(p.said, key)
		default:
			p.said[key] = line.now
			line.log()
		}
	}
}

// joined is texts as one; empty: there are none.
func joined(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return fmt.Sprint(texts)
}

// shortened are the first of texts, and how many more there are.
func shortened(texts []string) []string {
	const most = 16
	if len(texts) <= most {
		return texts
	}
	return append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", len(texts)-most))
}

// Shortage is a disk that is short, and what may be collected for it.
type Shortage struct {
	Wishes []eviction.Wish // of a Decision
	// LookedSince reports whether each signal that something is wished for was observed since a time.
	LookedSince func(time.Time) bool
	Fields      func() []any // of what is short, for the log
}

// Relieve has garbage collected before a pod goes for a disk. waits: that is under way, or its effect is not seen yet. Else it was tried, or
// cannot be: the look that there is decides.
func (p *Part) Relieve(now time.Time, s Shortage) (waits bool) {
	switch {
	case p.ask == nil || p.Observes():
		return false
	case !p.last.asked.IsZero() && p.last.done.Before(p.last.asked): // under way
		return now.Sub(p.last.asked) < relieveLimit
	case !p.last.done.IsZero() && now.Sub(p.last.done) < relieveAgain && p.last.covers(s.Wishes):
		// A look from before the end of it says nothing of what it freed.
		return !s.LookedSince(p.last.done)
	}
	p.last.asked, p.last.what = now, map[eviction.Reclaimable]bool{}
	for _, w := range s.Wishes {
		p.last.what[w.What] = true
	}
	p.o.Log.Info("collecting garbage before a pod is evicted", s.Fields()...)
	p.ask(Relief{Wishes: s.Wishes})
	return true
}

// covers: all that is wished for was asked for.
func (a *attempt) covers(wishes []eviction.Wish) bool {
	return !slices.ContainsFunc(wishes, func(w eviction.Wish) bool { return !a.what[w.What] })
}

// Observes: passes only plan.
func (p *Part) Observes() bool {
	if p.o.Mode != "" {
		return p.o.Mode == "observe"
	}
	return p.o.Kubelet()
}

// OnEvicted remembers that an evicted pod was cleaned up: nothing of it is needed any more, as long as it does not come back.
func (p *Part) OnEvicted(now time.Time, uid string) { p.o.Named.onEvicted(now, uid) }

// OnPods takes what the runtime's pods are now: an evicted one may be back.
func (p *Part) OnPods(pods read.Index) { p.o.Named.onPods(pods) }

// EvictionsFirst keeps the collector from taking a step while an eviction is under way that others wait for: what it asks of the runtime
// would be waited for.
func (p *Part) EvictionsFirst(busy bool) {
	if p.collector == nil || busy == p.holding {
		return
	}
	if p.holding = busy; busy {
		p.collector.Hold()
	} else {
		p.collector.Release()
	}
}
