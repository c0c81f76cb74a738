package garbage

import (
	"fmt"
	"slices"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/config"
	"jettison/internal/node/metrics"
	"jettison/reclaim"
	"jettison/stats/read"
)

// closeLimit is for a pass to end when the agent does.
const closeLimit = 2 * time.Second

// PartOptions are those of NewPart. Its functions are called in the loop's goroutine.
type PartOptions struct {
	Log     *logthrottle.Logger
	Named   *Named
	Mode    config.Mode // the config's gc
	Kubelet func() bool // one is on this node
	// Remeasure has what pods take of disks measured anew, after a pass that was to relieve one. nil:
	// it is not measured.
	Remeasure func()
}

// Part is a loop's share in garbage collection: passes are asked for when a disk is short, what
// they say is logged, and evictions go first. Whether a pass is worth waiting for is decided
// elsewhere (eviction.Manager). All of it is for the loop's goroutine. Without Start it collects
// nothing.
type Part struct {
	o         PartOptions
	collector *Collector // nil: no garbage is collected
	runner    *Runner
	ask       func([]eviction.Wish)
	results   chan Result
	ended     chan struct{} // closed when no result is taken any more
	counts    *metrics.Garbage
	holding   bool              // the collector waits for evictions
	said      map[string]string // what was last logged of passes, by what and kind
}

// NewPart makes a Part that collects nothing yet.
func NewPart(o PartOptions) *Part {
	return &Part{o: o, results: make(chan Result), ended: make(chan struct{}),
		said:   map[string]string{},
		counts: &metrics.Garbage{Took: metrics.NewHistogramVec(metrics.Passes...)}}
}

// Start begins to collect garbage: passes that are due, and those that a disk asks for. What is
// known of pods, and the mode, are the Part's. The returned function ends it; it is called once,
// when no result is taken any more.
func (p *Part) Start(o Options, s Schedule) (stop func()) {
	o.Known, o.Mode = p.o.Named.Known, p.o.Mode
	collector, err := New(o)
	if err != nil {
		p.o.Log.Warn("no garbage is collected", api.EventGarbage.Attr(), "error", err)
		return func() {}
	}
	if missing := collector.Missing(); len(missing) > 0 {
		p.o.Log.Info("garbage collection starts anew: nothing is remembered from before",
			api.EventGarbage.Attr(),
			"missing", missing)
	}
	results, ended := p.results, p.ended
	runner := Start(collector, s, func(r Result) {
		select {
		case results <- r:
		case <-ended:
		}
	})
	p.collector, p.runner, p.ask = collector, runner, runner.Relieve
	return func() {
		close(p.ended)
		if err := runner.Close(closeLimit); err != nil {
			p.o.Log.Warn("stopping", "error", err)
			return // it still uses the collector
		}
		collector.Close()
	}
}

// Reconfigure has passes go by another configuration from the next one on, at other times; 0:
// never. One that is under way ends after the step that it is at.
func (p *Part) Reconfigure(c config.Collect, containers, images time.Duration) {
	p.o.Mode = c.Mode
	if p.runner != nil {
		p.runner.Reconfigure(Policy{c, containers, images})
	}
}

// Results is where passes hand over what they have done. It is for OnResult.
func (p *Part) Results() <-chan Result { return p.results }

// OnResult takes the result of a pass.
func (p *Part) OnResult(r *Result) {
	if r.Trigger == reclaim.DiskPressure && p.o.Remeasure != nil {
		p.o.Remeasure()
	}
	p.count(r)
	log, fields := p.o.Log, r.Fields()
	switch {
	case r.Err != nil || r.Unseen != nil || r.Count(Failed) > 0:
		fields = append(fields, "problems", shortened(r.Problems()))
		log.Repeat("garbage: "+r.What.String(),
			func() { log.Warn(api.MessageGarbageFails, append(fields, api.EventGarbage.Attr())...) })
	case r.PutOff != "":
		log.Repeat("garbage put off: "+r.PutOff,
			func() { log.Info("garbage collection is put off", append(fields, api.EventGarbage.Attr())...) })
	case len(r.Done) > 0 || r.Trigger == reclaim.DiskPressure:
		log.Info("garbage collected", append(fields, api.EventGarbage.Attr())...)
	}
	p.news(r)
}

// Counts are what passes have done since the start. They are for any goroutine.
func (p *Part) Counts() *metrics.Garbage { return p.counts }

// objects are what the steps of a plan remove, as metrics call them.
var objects = map[reclaim.Action]string{
	reclaim.RemoveContainer: "container", reclaim.RemoveSandbox: "sandbox", reclaim.RemoveLogs: "logs",
	reclaim.RemoveLink:   "link",
	reclaim.RemoveCgroup: "cgroup", reclaim.RemoveVolumes: "volumes", reclaim.RemoveImage: "image",
}

// count counts a pass that was made.
func (p *Part) count(r *Result) {
	if r.PutOff != "" {
		return
	}
	pass := r.What.String()
	if r.What == Everything {
		pass = "everything"
	}
	p.counts.Took.Observe(r.Took, pass)
	for i := range r.Done {
		switch d := &r.Done[i]; d.Outcome {
		case Removed:
			p.counts.Removed.Add(1, objects[d.Action])
		case Failed:
			p.counts.Failed.Add(1, objects[d.Action])
		}
	}
	if freed := r.Freed(); freed.OK {
		p.counts.Freed.Add(float64(freed.V), pass)
	}
	if r.Err == nil && r.Unseen == nil && r.Count(Failed) == 0 {
		p.counts.Success.Set(float64(r.Began.Add(r.Took).Unix()), pass)
	}
}

// news logs what a pass that did not fail says beside its steps, whenever that is something else
// than after the last one of its kind: what is wrong, what stays because it is no pod's that is
// known, and what would go where nothing may.
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
		{"problems", joined(problems),
			func() {
				p.o.Log.Warn("garbage collection", api.EventGarbage.Attr(), "what", r.What.String(),
					"problems", problems)
			}},
		{"left", joined(left), func() {
			p.o.Log.Info(
				"garbage collection leaves alone what belongs to no known pod", api.EventGarbage.Attr(), "left",
				left)
		}},
		{"observed", observed, func() {
			p.o.Log.Info("garbage is not collected here",
				append(r.Fields(), api.EventGarbage.Attr())...)
		}},
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

// Acts reports whether passes remove something: they were started, and neither the config nor a
// kubelet keeps them from it.
func (p *Part) Acts() bool { return p.ask != nil && p.o.Mode.Acts(p.o.Kubelet()) }

// Relieve has what is wished for collected at once, for a disk that is short. It never blocks; the
// result comes like any other. It is for a Part that Acts.
func (p *Part) Relieve(wishes []eviction.Wish) { p.ask(wishes) }

// OnEvicted remembers that an evicted pod was cleaned up: nothing of it is needed any more, as long
// as it does not come back. began is when its eviction did, sandboxes are those that were evicted.
func (p *Part) OnEvicted(began time.Time, uid string, sandboxes []string) {
	p.o.Named.onEvicted(began, uid, sandboxes)
}

// OnPods takes what the runtime's pods are now: an evicted one may be back.
func (p *Part) OnPods(pods read.Index) { p.o.Named.onPods(pods) }

// EvictionsFirst keeps the collector from taking a step while an eviction is under way that others
// wait for: what it asks of the runtime would be waited for.
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
