package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"jettison/eviction"
	"jettison/internal/collect"
	"jettison/reclaim"
)

const (
	collectClose = 2 * time.Second // for a pass to end when the agent does
	doubtFor     = time.Hour       // for which a manifest that cannot be read keeps every pod from counting as gone
)

// startCollector begins to collect garbage: passes that are due, and those that a disk asks for. The returned function ends it. A dry run
// collects nothing.
func (a *agent) startCollector(now time.Time) (stop func()) {
	if a.o.DryRun {
		return func() {}
	}
	c := a.o.Config
	collector, err := collect.New(collect.Options{
		Runtime: a.Client, Policy: c.GCPolicy(), PodGoneAfter: time.Duration(c.PodGoneAfter), Known: a.namedPods, Mode: c.GC, ProcMount: a.o.ProcMount,
		Host: a.host, RootDir: c.RootDir, PodLogsDir: c.PodLogsDir, CgroupMount: a.FS.Mount(), CgroupRoot: c.CgroupRoot, StateDir: c.StateDir, Started: now,
	})
	if err != nil {
		a.log.Warn("no garbage is collected", "error", err)
		return func() {}
	}
	if missing := collector.Missing(); len(missing) > 0 {
		a.log.Info("garbage collection starts anew: nothing is remembered from before", "missing", missing)
	}
	a.collector = collector
	a.runner = collect.Start(collector, collect.Schedule{
		Started: now, Containers: time.Duration(c.ContainerGCPeriod), Images: time.Duration(c.ImageGCPeriod), Jitter: rand.Float64(), Detect: true,
	}, func(r collect.Result) {
		select {
		case a.collected <- r:
		case <-a.ended:
		}
	})
	return func() {
		close(a.ended)
		if err := a.runner.Close(collectClose); err != nil {
			a.log.Warn("stopping", "error", err)
			return // it still uses the collector
		}
		collector.Close()
	}
}

// namedPods are the pods that clients and manifests name. It is called in the collector's goroutine.
func (a *agent) namedPods() collect.Known {
	out := collect.Known{Pods: map[string]reclaim.Phase{}, Synced: a.manifestsKnown(time.Now())}
	var evicted map[string]time.Time
	if m := a.evictedPods.Load(); m != nil {
		evicted = *m
	}
	for _, p := range a.store.Snapshot().Objects {
		phase := collect.PhaseOf(p)
		if _, was := evicted[string(p.UID)]; was { // nobody may have told the object yet
			phase = reclaim.Evicted
		}
		out.Pods[string(p.UID)] = phase
	}
	return out
}

// manifestsKnown: all static manifests were read.
func (a *agent) manifestsKnown(now time.Time) bool {
	if a.o.Config.StaticPodPath == "" {
		return true
	}
	return a.manifestsRead.Load() && now.UnixNano()-a.manifestsDoubted.Load() > int64(doubtFor)
}

// wasEvicted remembers for the collector, which runs beside the loop, that nothing of a pod is needed any more, as long as it does not
// come back.
func (a *agent) wasEvicted(uid string) {
	next := map[string]time.Time{uid: time.Now()}
	if old := a.evictedPods.Load(); old != nil {
		maps.Copy(next, *old)
	}
	a.evictedPods.Store(&next)
}

// backAgain forgets that pods were evicted which have a sandbox again, or of which the runtime knows nothing any more.
func (a *agent) backAgain() {
	old := a.evictedPods.Load()
	if old == nil {
		return
	}
	next := maps.Clone(*old)
	maps.DeleteFunc(next, func(uid string, at time.Time) bool {
		p := a.pods[uid]
		return p == nil || p.Ready() && p.Sandboxes[0].CreatedAt.After(at)
	})
	if len(next) < len(*old) {
		a.evictedPods.Store(&next)
	}
}

// garbage takes the result of a pass.
func (a *agent) garbage(now time.Time, r *collect.Result) {
	a.untrimmed = true
	if r.Trigger == reclaim.DiskPressure {
		a.manager.Relieved(now)
		if a.background != nil {
			a.background.Remeasure()
		}
	}
	fields := r.Fields()
	switch {
	case r.Err != nil || r.Unseen != nil || r.Count(collect.Failed) > 0:
		fields = append(fields, "problems", some(r.Problems()))
		a.repeat("garbage: "+r.What.String(), func() { a.log.Warn("not all garbage could be collected", fields...) })
	case r.PutOff != "":
		a.repeat("garbage put off: "+r.PutOff, func() { a.log.Info("garbage collection is put off", fields...) })
	case len(r.Done) > 0 || r.Trigger == reclaim.DiskPressure:
		a.log.Info("garbage collected", fields...)
	}
	a.garbageNews(r)
}

// garbageNews logs what a pass that did not fail says beside its steps, whenever that is something else than after the last one of its kind: what
// is wrong, what stays because it is nobody's, and what would go where nothing may.
func (a *agent) garbageNews(r *collect.Result) {
	if r.Err != nil || r.PutOff != "" {
		return
	}
	var problems, left []string
	if r.Unseen == nil && r.Count(collect.Failed) == 0 { // else they were said
		problems = some(r.Problems())
	}
	for _, l := range r.Plan.Left {
		left = append(left, l.String())
	}
	left = some(left)
	observed := ""
	if r.Observed != "" && r.Observed != collect.DryRun && len(r.Plan.Steps) > 0 {
		observed = r.Observed
	}
	for _, news := range []struct {
		key, now string
		log      func()
	}{
		{"problems", fmt.Sprint(problems), func() { a.log.Warn("garbage collection", "what", r.What.String(), "problems", problems) }},
		{"left", fmt.Sprint(left), func() { a.log.Info("garbage collection leaves alone what nobody knows", "left", left) }},
		{"observed", observed, func() { a.log.Info("garbage is not collected here", r.Fields()...) }},
	} {
		key := news.key + " " + r.What.String()
		nothing := news.now == "" || news.now == "[]"
		if news.now == a.garbageSaid[key] || nothing && a.garbageSaid[key] == "" {
			continue
		}
		if nothing {
			delete(a.garbageSaid, key)
			continue
		}
		if a.garbageSaid == nil {
			a.garbageSaid = map[string]string{}
		}
		a.garbageSaid[key] = news.now
		news.log()
	}
}

// some are the first of texts, and how many more there are.
func some(texts []string) []string {
	const most = 16
	if len(texts) <= most {
		return texts
	}
	return append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", len(texts)-most))
}

// relieve has garbage collected before a pod goes for a disk. false: that was tried, or cannot be; the look that there is decides.
func (a *agent) relieve(now time.Time, d *eviction.Decision) (waits bool) {
	if a.runner == nil || a.gcObserves() {
		return false
	}
	switch a.manager.Relief(now, d) {
	case eviction.ReliefNone:
		return false
	case eviction.ReliefBegin:
		a.log.Info("collecting garbage before a pod is evicted", signalFields(d.Met[0])...)
		a.runner.Relieve(collect.Relief{Wishes: d.Reclaim})
	}
	return true
}

// gcObserves: passes only plan.
func (a *agent) gcObserves() bool {
	if a.o.Config.GC != "" {
		return a.o.Config.GC == "observe"
	}
	return a.kubelet
}

// evicting: an eviction is under way that others wait for: not one whose victim does not die, nor one that takes minutes.
func (a *agent) evicting() bool {
	return a.manager.Ready(time.Now()).Evicting
}

// evictionsFirst keeps garbage collection from taking a step while an eviction is under way: what it asks of the runtime would be
// waited for.
func (a *agent) evictionsFirst() {
	busy := a.evicting()
	if a.collector == nil || busy == a.holding {
		return
	}
	if a.holding = busy; busy {
		a.collector.Hold()
	} else {
		a.collector.Release()
	}
}
