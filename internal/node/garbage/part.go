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

// closeLimit bounds the wait for a pass when the agent ends.
const closeLimit = 2 * time.Second

// PartOptions are the options of NewPart. The loop's goroutine calls the functions.
type PartOptions struct {
	Log     *logthrottle.Logger
	Named   *Named
	Mode    config.Mode // setting gc of the configuration
	Kubelet func() bool // reports whether the node has a kubelet
	// Remeasure requests new measurements of the pods' disk usage after a pass for a disk that is
	// short. May be nil.
	Remeasure func()
}

// Part is the loop's side of garbage collection. It requests passes when a disk is short, logs
// their results, and holds them during evictions. eviction.Manager decides whether to wait for a
// pass. Only the loop's goroutine may use a Part. Without Start it collects nothing.
type Part struct {
	o         PartOptions
	collector *Collector // nil: garbage collection is disabled
	runner    *Runner
	relieve   func([]eviction.ReclaimRequest)
	results   chan Result
	ended     chan struct{} // closed when results are no longer received
	counts    *metrics.Garbage
	holding   bool              // Hold was called on the collector
	logged    map[string]string // last logged text of passes, by topic and kind
}

// NewPart returns a Part that collects nothing yet.
func NewPart(o PartOptions) *Part {
	return &Part{o: o, results: make(chan Result), ended: make(chan struct{}),
		logged: map[string]string{},
		counts: &metrics.Garbage{Took: metrics.NewHistogramVec(metrics.Passes...)}}
}

// Start starts garbage collection: periodic passes, and those that Relieve requests. It sets Known
// and Mode of o. Call the returned function once, after the last result was received, to stop.
func (p *Part) Start(o Options, s Schedule) (stop func()) {
	o.Known, o.Mode = p.o.Named.Known, p.o.Mode
	collector, err := New(o)
	if err != nil {
		//log: The garbage collector could not start. The agent removes no garbage until it is restarted;
		//  it still evicts pods.
		//do: Fix the cause in the key error, and restart the agent.
		p.o.Log.Warn("garbage collection disabled", api.EventGarbage.Attr(), "error", err)
		return func() {}
	}
	if missing := collector.Missing(); len(missing) > 0 {
		//log: State files of the garbage collector do not exist, as at the first start. Ages of images
		//  and the times since which pods have nothing alive count from now.
		p.o.Log.Info("garbage collection state missing, starting without it",
			api.EventGarbage.Attr(), "missing", missing)
	}
	results, ended := p.results, p.ended
	runner := Start(collector, s, func(r Result) {
		select {
		case results <- r:
		case <-ended:
		}
	})
	p.collector, p.runner, p.relieve = collector, runner, runner.Relieve
	return func() {
		close(p.ended)
		if err := runner.Close(closeLimit); err != nil {
			//log: A garbage collection pass did not end within 2 s when the agent stopped, usually because
			//  a file system hangs. The agent exits without waiting longer.
			//do: Check the node for hanging file systems, for example network mounts.
			p.o.Log.Warn("garbage collection did not stop in time", "error", err)
			return // the pass still uses the collector
		}
		collector.Close()
	}
}

// Reconfigure sets the configuration and the periods (0: never) from the next pass on. A pass in
// progress ends after its current step.
func (p *Part) Reconfigure(c config.Collect, containers, images time.Duration) {
	p.o.Mode = c.Mode
	if p.runner != nil {
		p.runner.Reconfigure(Policy{c, containers, images})
	}
}

// Results returns the channel of pass results, which the loop passes to OnResult.
func (p *Part) Results() <-chan Result { return p.results }

// OnResult counts and logs the result of a pass.
func (p *Part) OnResult(r *Result) {
	if r.Trigger == reclaim.DiskPressure && p.o.Remeasure != nil {
		p.o.Remeasure()
	}
	p.count(r)
	log, fields := p.o.Log, r.Fields()
	switch {
	case r.Err != nil || r.ImagesErr != nil || r.Count(Failed) > 0:
		fields = append(fields, "problems", truncated(r.Problems()))
		//log: A garbage collection pass failed as a whole or in part. The keys error and problems contain
		//  the causes. Failed steps are retried with backoff.
		//do: Read the key problems. Check the container runtime if it does not answer.
		log.Repeat("garbage: "+r.What.String(),
			func() { log.Warn(api.MessageGarbageFails, append(fields, api.EventGarbage.Attr())...) })
	case r.Postponed != "":
		//log: The container runtime was slow to list containers or images, so the agent postponed this
		//  periodic pass. After three postponed passes the next one runs in any case.
		log.Repeat("garbage postponed: "+r.Postponed,
			func() { log.Info("garbage collection postponed", append(fields, api.EventGarbage.Attr())...) })
	case len(r.Done) > 0 || r.Trigger == reclaim.DiskPressure:
		//log: A garbage collection pass ended. The keys contain the numbers of removed, failed and
		//  skipped objects, and the bytes predicted and freed.
		log.Info("garbage collected", append(fields, api.EventGarbage.Attr())...)
	}
	p.logChanges(r)
}

// Counts returns the metrics of all passes. Any goroutine may use them.
func (p *Part) Counts() *metrics.Garbage { return p.counts }

// objects maps the steps of a plan to the metric label of the removed object.
var objects = map[reclaim.Action]string{
	reclaim.RemoveContainer: "container", reclaim.RemoveSandbox: "sandbox", reclaim.RemoveLogs: "logs",
	reclaim.RemoveLink:   "link",
	reclaim.RemoveCgroup: "cgroup", reclaim.RemoveVolumes: "volumes", reclaim.RemoveImage: "image",
}

// count counts a pass, unless it was postponed.
func (p *Part) count(r *Result) {
	if r.Postponed != "" {
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
	if r.Err == nil && r.ImagesErr == nil && r.Count(Failed) == 0 {
		p.counts.Success.Set(float64(r.Began.Add(r.Took).Unix()), pass)
	}
}

// logChanges logs findings of a successful pass when they differ from the last pass of its kind:
// problems, garbage of unknown pods that stays, and planned steps that may not be carried out.
func (p *Part) logChanges(r *Result) {
	if r.Err != nil || r.Postponed != "" {
		return
	}
	var problems, left []string
	if r.ImagesErr == nil && r.Count(Failed) == 0 { // otherwise OnResult has logged them
		problems = truncated(r.Problems())
	}
	for _, l := range r.Plan.Left {
		left = append(left, l.String())
	}
	left = truncated(left)
	observed := ""
	if r.PlanOnly != "" && r.PlanOnly != DryRun && len(r.Plan.Steps) > 0 {
		observed = r.PlanOnly
	}
	for _, line := range []struct {
		key, now string
		log      func()
	}{
		{"problems", joined(problems),
			func() {
				//log: A garbage collection pass succeeded, but found problems with the node, the policy or
				//  its data. It is logged again when the problems change.
				//do: Read the key problems.
				p.o.Log.Warn("garbage collection found problems", api.EventGarbage.Attr(),
					"what", r.What.String(), "problems", problems)
			}},
		{"left", joined(left), func() {
			//log: Leftovers on the node belong to no pod that the agent knows. The agent does not remove
			//  them. The key left lists each with the reason.
			//do: Remove them by hand if they are not needed.
			p.o.Log.Info("keeping leftovers of unknown pods", api.EventGarbage.Attr(), "left", left)
		}},
		{"observed", observed, func() {
			//log: A pass has planned removals, but may not remove garbage on this node: a kubelet collects
			//  it, or the configuration forbids it. The key planOnly contains the reason.
			p.o.Log.Info("garbage collection only plans", append(r.Fields(), api.EventGarbage.Attr())...)
		}},
	} {
		key := line.key + " " + r.What.String()
		switch before := p.logged[key]; {
		case line.now == before:
		case line.now == "":
			delete(p.logged, key)
		default:
			p.logged[key] = line.now
			line.log()
		}
	}
}

// joined returns the texts as one, or an empty string without texts.
func joined(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return fmt.Sprint(texts)
}

// truncated returns the first 16 texts and the number of the remaining ones.
func truncated(texts []string) []string {
	const most = 16
	if len(texts) <= most {
		return texts
	}
	return append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", len(texts)-most))
}

// Acts reports whether passes remove garbage: Start was called, and neither the configuration nor a
// kubelet prevents it.
func (p *Part) Acts() bool { return p.relieve != nil && p.o.Mode.Acts(p.o.Kubelet()) }

// Relieve requests an immediate pass for a disk that is short. It never blocks; the result arrives
// on Results. Call it only if Acts returns true.
func (p *Part) Relieve(wishes []eviction.ReclaimRequest) { p.relieve(wishes) }

// OnEvicted records that an evicted pod was cleaned up: its leftovers are garbage until it is
// restarted. began is the start of the eviction, and sandboxes are the evicted ones.
func (p *Part) OnEvicted(began time.Time, uid string, sandboxes []string) {
	p.o.Named.onEvicted(began, uid, sandboxes)
}

// OnPods checks the runtime's pods for evicted ones that were restarted.
func (p *Part) OnPods(pods read.Index) { p.o.Named.onPods(pods) }

// EvictionsFirst stops new steps while busy, that is, while an eviction is in progress: their calls
// would delay those of the eviction in the runtime.
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
