// Package agent is the loop: look, decide, act, look again. One goroutine owns all state; a second lists the runtime's pods,
// and one more lives for each eviction, to wait for the kernel and the runtime. The loop waits for both when it ends.
package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"jettison/cmd/jettison/internal/config"
	"jettison/cmd/jettison/internal/protect"
	"jettison/cmd/jettison/internal/sources"
	"jettison/eviction"
	"jettison/stats"
)

// Times of the loop.
const (
	poll         = 100 * time.Millisecond // between two cheap looks
	pollEviction = 5 * time.Millisecond   // the same while the memory of a victim is on its way back
	slowTick     = time.Second            // between two looks for pods that the runtime has not told of
	unannounced  = 50 * time.Millisecond  // how long a kill waits for the runtime to name a pod that only the kernel knows
	dieLimit     = 10 * time.Second       // from the kill until the victim counts as one that will not die
	backLimit    = 2 * time.Second        // from the empty cgroup until the next victim is looked for all the same
	cleanGrace   = 3 * time.Second        // for the runtime to clean up once the agent is told to stop
	repeatLog    = 10 * time.Second       // between two lines that say the same
)

// asks bounds how often the runtime is asked about one pod that only the kernel knows: a cgroup may be left behind by a pod
// that is gone for good.
const asks = 5

// nearThreshold times the threshold is when the runtime is listed each second: a decision may be due soon.
const nearThreshold = 2

// Options of Run.
type Options struct {
	Config      *config.Loaded
	CgroupMount string // empty: cgroup.DefaultMount
	ProcMount   string // empty: /proc
	DryRun      bool
	Log         *slog.Logger
	Version     string
}

// Run checks what the agent needs, waits for the runtime's first answer and then keeps the node alive until ctx ends. It
// returns an error only for what was wrong at the start.
func Run(ctx context.Context, o Options) error {
	s, err := sources.Open(sources.Options{Config: o.Config, CgroupMount: o.CgroupMount, ProcMount: o.ProcMount, Act: !o.DryRun})
	if err != nil {
		return err
	}
	defer s.Close()
	refused := protect.Self()
	a := newAgent(o, s)
	// Without one list of the runtime nobody knows which pods are protected, so this comes before the first look.
	runtime, listing, err := sources.FirstAnswer(ctx, s.Client, a.watcher.lister, time.Duration(o.Config.RuntimeWait))
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	a.pods = stats.NewIndex(listing)
	a.announce(runtime.Name+" "+runtime.Version, refused)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go a.watcher.run(ctx)
	a.loop(ctx)
	a.interrupted()
	cancel()
	a.evictions.Wait()
	<-a.watcher.done
	o.Log.Info("stopped")
	return nil
}

// agent is the loop's state. Everything in it belongs to the loop's goroutine but what is said otherwise.
type agent struct {
	*sources.Sources
	o       Options
	log     *slog.Logger
	manager *eviction.Manager
	watcher *watcher

	pods    stats.Index // the runtime's, as last listed
	lost    bool        // the runtime did not answer last time
	node    stats.NodeStats
	summary stats.Summary
	blind   string               // the error of the last look, as logged; empty: all is read
	current *underway            // the eviction under way; nil: none
	said    map[string]time.Time // what was logged when, of lines that repeat
	asked   map[string]int       // pods that only the kernel knows, by UID: how often the runtime was asked about them

	empty     chan error // the current victim's cgroup is empty (nil) or would not become so
	cleaned   chan cleaned
	evictions sync.WaitGroup // goroutines of evictions
}

func newAgent(o Options, s *sources.Sources) *agent {
	c := o.Config
	return &agent{
		Sources: s, o: o, log: o.Log, watcher: newWatcher(s.Client), said: map[string]time.Time{}, asked: map[string]int{},
		manager: eviction.NewManager(eviction.Config{
			Thresholds: acting(c.Hard), MemoryAvailable: c.MemoryAvailable,
			Policy: eviction.Policy{AnnotationNamespaces: c.AnnotationNamespaces, ProtectedNamespaces: c.ProtectedNamespaces},
		}),
		empty: make(chan error, 1), cleaned: make(chan cleaned, 16),
	}
}

// acting are the thresholds that this version acts on.
func acting(all []eviction.Threshold) (out []eviction.Threshold) {
	for _, t := range all {
		if config.Acts(t.Signal) {
			out = append(out, t)
		}
	}
	return out
}

// announce logs what the agent starts with, and once each thing that it has to do without.
func (a *agent) announce(runtime string, refused []error) {
	selfErr := a.Collector.FindSelf()
	var thresholds []string
	for _, t := range acting(a.o.Config.Hard) {
		thresholds = append(thresholds, t.String())
	}
	a.log.Info("started", "version", a.o.Version, "runtime", runtime, "endpoint", a.Client.Endpoint(), "cgroup", a.FS.Mount(),
		"thresholds", thresholds, "memoryAvailable", a.o.Config.MemoryAvailable, "config", a.o.Config.Path, "dryRun", a.o.DryRun,
		"self", a.Collector.Self())
	for _, w := range a.o.Config.Warnings {
		a.log.Warn("config: " + w)
	}
	for _, err := range refused {
		a.log.Warn("not protected", "error", err)
	}
	if selfErr != nil {
		a.log.Warn("the agent's own pod is not known: only its namespace or priority protects it", "error", selfErr)
	}
	if text := sources.NoPressure(a.o.ProcMount); text != "" {
		a.log.Warn(text)
	}
	if len(thresholds) == 0 {
		a.log.Warn("no threshold that this version acts on is set: nothing will be evicted")
	}
}

// loop is the agent's life.
func (a *agent) loop(ctx context.Context) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	every := poll
	slow := time.NewTicker(slowTick)
	defer slow.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-a.watcher.updates:
			a.listed(u)
			continue
		case c := <-a.cleaned:
			if c.err != nil {
				a.log.Error("the runtime did not clean up after an evicted pod", "pod", a.name(c.pod), "error", c.err)
			}
			a.manager.Cleaned(time.Now(), c.pod.UID)
			continue
		case <-slow.C:
			a.keepUp()
			continue
		case err := <-a.empty:
			a.emptied(err)
		case <-ticker.C:
		}
		a.look(ctx, time.Now())
		want := poll
		if a.current != nil {
			want = pollEviction
		}
		if want != every {
			every = want
			ticker.Reset(every)
		}
	}
}

// keepUp has the runtime listed when there is something to learn: a pod that only the kernel knows, or a shortage near.
func (a *agent) keepUp() {
	here, ask := map[string]int{}, false
	a.Collector.Strangers(a.pods, func(uid string) {
		here[uid] = a.asked[uid]
		if here[uid] < asks {
			here[uid]++
			ask = true
		}
	})
	a.asked = here
	if ask || a.manager.Near(&a.node, nearThreshold) {
		a.watcher.ask()
	}
}

// listed takes an answer of the runtime. Its loss and its return are logged once each.
func (a *agent) listed(u update) {
	if u.err != nil {
		if !a.lost {
			a.log.Warn("lost the runtime, going on with what the kernel tells", "error", u.err)
		}
		a.lost = true
		return
	}
	if a.lost {
		a.log.Info("the runtime is back")
	}
	a.lost = false
	a.pods = u.pods
}

// look is one cheap look and what follows from it.
func (a *agent) look(ctx context.Context, now time.Time) {
	met := a.measure(now)
	if a.current != nil {
		a.progress(now, met)
		return
	}
	if len(met) == 0 {
		return
	}
	a.decide(ctx, now)
}

// measure is the cheap look and, where it says that memory is short, a second one at what MemAvailable does not count.
func (a *agent) measure(now time.Time) []eviction.Met {
	a.readable(a.Collector.Node(now, &a.node))
	met := a.manager.Observe(now, &a.node)
	if len(met) > 0 {
		a.Collector.PerCPU(&a.node)
		met = a.manager.Observe(now, &a.node)
	}
	return met
}

// readable logs once that a source cannot be read, and once that it can be again.
func (a *agent) readable(err error) {
	switch {
	case err == nil && a.blind != "":
		a.log.Info("everything is read again")
		a.blind = ""
	case err != nil && a.blind != err.Error():
		a.log.Error("cannot read the node's memory", "error", err)
		a.blind = err.Error()
	}
}

// decide is the dear look, made only when a threshold is met: it measures every pod, ranks them, and evicts the first.
func (a *agent) decide(ctx context.Context, now time.Time) {
	err := a.Collector.Memory(now, a.pods, &a.summary)
	if a.strangers() {
		a.ask(ctx)
		now = time.Now()
		err = a.Collector.Memory(now, a.pods, &a.summary)
	}
	if err != nil {
		a.repeat("reading pods: "+err.Error(), func() { a.log.Warn("some pods could not be measured", "error", err) })
	}
	d := a.manager.Step(now, eviction.Input{Summary: &a.summary})
	if len(d.Evictions) == 0 {
		if len(d.Met) > 0 {
			a.repeat("nobody: "+d.Reason, func() {
				a.log.Warn("no eviction", append(signalFields(d.Signal), "reason", d.Reason, "protected", len(d.Protected))...)
			})
		}
		return
	}
	if a.o.DryRun {
		a.repeat("dry run: "+d.Evictions[0].Pod.PodRef.UID, func() { a.log.Info("would evict", a.describe(d)...) })
		return
	}
	a.evict(ctx, d)
}

// strangers reports whether the hierarchy has pods that the runtime has not told of.
func (a *agent) strangers() bool {
	for _, p := range a.summary.Pods {
		if !p.Announced && p.Populated.V {
			return true
		}
	}
	return false
}

// ask has the runtime listed now and waits a moment for its answer.
func (a *agent) ask(ctx context.Context) {
	select {
	case u := <-a.watcher.updates: // an older answer, which must not be taken for the one to come
		a.listed(u)
	default:
	}
	a.watcher.ask()
	timer := time.NewTimer(unannounced)
	defer timer.Stop()
	select {
	case u := <-a.watcher.updates:
		a.listed(u)
	case <-timer.C:
	case <-ctx.Done():
	}
}
