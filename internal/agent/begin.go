package agent

import (
	"context"
	"time"

	"jettison/internal/node/kill"
	"jettison/internal/node/selfprotect"
	"jettison/internal/node/sources"
)

// announce logs what the agent starts with, and once each thing that it has to do without.
func (b *builder) announce(l *loop, refused []error) {
	c, reader := b.o.Config, l.looks.Reader()
	selfErr := reader.FindSelf()
	var thresholds []string
	for _, t := range c.Thresholds {
		thresholds = append(thresholds, t.String())
	}
	l.kubelet.LookNow()
	b.log.Info("started", "version", b.o.Version, "runtime", b.runtime,
		"endpoint", b.s.Client.Endpoint(), "cgroup", b.s.FS.Mount(),
		"thresholds", thresholds, "memoryAvailable", c.MemoryAvailable, "config", c.From, "dryRun",
		b.o.DryRun,
		"self", reader.Self(), "kubelet", l.kubelet.Found(), "disk", l.diskMode(), "fillFloor",
		int64(l.pace.Fill()))
	for _, w := range c.Warnings {
		b.log.Warn("config: " + w)
	}
	for _, err := range append(refused, b.doubts...) {
		b.log.Warn("not as it should be", "error", err)
	}
	if selfErr != nil {
		b.log.Warn("the agent's own pod is not known: only its namespace or priority protects it",
			"error", selfErr)
	}
	if text := sources.NoPressure(b.o.ProcMount); text != "" {
		b.log.Warn(text)
	}
	if len(thresholds) == 0 {
		b.log.Warn("no threshold is set: nothing will be evicted but pods over limits of their own")
	} else if !watchesMemory(c.Config) {
		sayUnwatched(b.log, c.From)
	}
}

// protect keeps the agent's memory from being reclaimed, and undoes at the end what would outlive
// the agent.
func (b *builder) protect(l *loop) {
	own := l.looks.Reader().Self()
	if own == "" || b.o.DryRun {
		return
	}
	apart, err := selfprotect.Apart(b.s.FS, own)
	b.closing(apart)
	if err != nil {
		b.log.Warn("not as it should be", "error", err)
	}
	o := &ownMemory{fs: b.s.FS, cgroup: own, log: b.log, above: !l.kubelet.Found() &&
		!b.before.left.Protection}
	o.raise()
	b.closing(o.close)
	l.upkeep.own = o
}

// mend puts back what the process before this one has left in pods' cgroups, if it crashed in the
// middle of a kill. A pod that dies still, and is taken up by resume, dies all the same.
func (b *builder) mend(l *loop) {
	if b.o.DryRun {
		return
	}
	var paths []string
	l.looks.Reader().EachPod(func(_, path string) { paths = append(paths, path) })
	mended, err := kill.Mend(b.s.FS, paths)
	if len(mended) > 0 {
		b.log.Info("put back what a crash has left in pods' cgroups", "cgroups", mended)
	}
	if err != nil {
		b.log.Warn("not as it should be", "error", err)
	}
}

// resume goes on where the process before this one was: it was killed, it crashed, or it was told
// to stop in the middle of an eviction.
func (b *builder) resume(ctx context.Context, l *loop, now time.Time) {
	l.gate.Resume(now, b.before.state.HoldOffs)
	for _, err := range b.manager.Resume(now, b.before.state.Manager) {
		b.log.Warn("what was kept is not whole", "error", err)
	}
	lives := b.manager.Lives()
	for _, life := range lives { // the state of an older agent has no signal in its hold-offs
		l.gate.SetSignal(life.Eviction().Pod.PodRef.UID, life.Eviction().Signal)
	}
	n := len(lives)
	going := l.evictions.Resume(ctx, now, b.before.running)
	if n+len(b.before.state.HoldOffs)+len(b.before.state.Manager.Aside) > 0 {
		b.log.Info("going on where the agent was", "evictions", going,
			"heldOff", len(b.before.state.HoldOffs),
			"setAside", len(b.before.state.Manager.Aside), "savedAt", b.before.state.Time)
	}
}
