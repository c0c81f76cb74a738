package agent

import (
	"context"
	"time"

	"jettison/cgroup"
	"jettison/internal/node/kill"
	"jettison/internal/node/selfprotect"
	"jettison/internal/node/sources"
	"jettison/stats"
	"jettison/stats/read"
)

// announce logs the start, and each restriction that the agent has to work with, once.
func (b *builder) announce(l *loop, refused []error) {
	c, reader := b.o.Config, l.looks.Reader()
	selfErr := reader.FindSelf()
	var thresholds []string
	for _, t := range c.Thresholds {
		thresholds = append(thresholds, t.String())
	}
	l.kubelet.LookNow()
	//log: The agent has started. The keys give its version, the container runtime, the thresholds and
	//  modes, and whether a kubelet was found.
	b.log.Info("started", "version", b.o.Version, "runtime", b.runtime,
		"endpoint", b.s.Client.Endpoint(), "cgroup", b.s.FS.Mount(),
		"thresholds", thresholds, "memoryAvailable", c.MemoryAvailable, "config", c.From, "dryRun",
		b.o.DryRun,
		"self", reader.Self(), "kubelet", l.kubelet.Found(), "disk", l.diskMode(), "fillFloor",
		int64(l.pace.Fill()))
	for _, w := range c.Warnings {
		//log: The configuration has a questionable value, which the key warning names.
		//do: Correct the configuration, or ignore the warning if the value is intended.
		b.log.Warn("configuration warning", "warning", w)
	}
	for _, err := range refused {
		//log: The kernel refused one of the agent's measures to protect itself, such as its OOM score or
		//  locked memory. The agent runs without it.
		//do: Grant the privilege that the key error names, see the installation guide.
		b.log.Warn("self-protection incomplete", "error", err)
	}
	for _, err := range b.doubts {
		//log: The kubelet's configuration has a threshold or reservation that exceeds the node's
		//  capacity. The agent uses it nevertheless.
		//do: Correct the threshold or reservation that the key error names.
		b.log.Warn("configuration exceeds node capacity", "error", err)
	}
	if selfErr != nil {
		//log: The agent could not find its own cgroup. It does not evict itself only if its namespace is
		//  protected or its priority is critical.
		//do: Run the agent in a protected namespace or with a critical priority. See the key error.
		b.log.Warn("agent's own pod unknown",
			"error", selfErr)
	}
	if text := sources.NoPressure(b.o.ProcMount); text != "" {
		//log: The kernel provides no pressure stall information (PSI). The agent polls memory without
		//  pressure triggers.
		//do: Boot the kernel with psi=1.
		b.log.Warn("pressure information unavailable", "reason", text)
	}
	if len(thresholds) == 0 {
		//log: No eviction threshold is configured. The agent evicts only pods that exceed their own
		//  limits.
		//do: Configure evictionHard, at least for memory.available.
		b.log.Warn("no eviction threshold configured")
	} else if !watchesMemory(c.Config) {
		logUnwatched(b.log, c.From)
	}
}

// protect protects the agent's memory from reclaim, and restores at the end all settings that would
// outlive the agent.
func (b *builder) protect(l *loop) {
	own := l.looks.Reader().Self()
	if own == "" || b.o.DryRun {
		return
	}
	apart, err := selfprotect.IsolateOOMKills(b.s.FS, own)
	b.onCloseErr(apart)
	if err != nil {
		b.log.Warn("self-protection incomplete", "error", err)
	}
	fs, err := cgroup.OpenTree(b.s.FS.Mount()) // separate: a raise may outlive other readers
	if err != nil {
		b.log.Warn("self-protection incomplete", "error", err)
		return
	}
	o := newOwnMemory(fs, own, !l.kubelet.Found() && !b.before.left.Protection, b.log)
	o.raise()
	b.onCloseErr(o.close)
	l.upkeep.own = o
}

// restoreKills thaws and continues pods' processes if the previous process crashed in the middle of
// a kill. A pod that is still dying is resumed by resume.
func (b *builder) restoreKills(l *loop) {
	if b.o.DryRun {
		return
	}
	thawed, err := kill.Restore(b.s.FS, b.killable(l.looks.Reader()))
	if len(thawed) > 0 {
		//log: The previous agent process crashed during a kill. The processes that it left frozen in
		//  these cgroups were thawed.
		b.log.Info("restored pod cgroups after crash", "cgroups", thawed)
	}
	if err != nil {
		//log: Processes that a crashed agent left frozen in pods' cgroups could not be thawed.
		//do: See the key error. Deleting the pod ends its processes.
		b.log.Warn("restore of pod cgroups after crash failed", "error", err)
	}
	continued, err := kill.Continue(b.sharedProcesses())
	if len(continued) > 0 {
		//log: The previous agent process crashed during a kill of containers that share their cgroups.
		//  The agent continued their stopped processes, of which these are the first ones.
		b.log.Info("continued processes after crash", "processes", continued)
	}
	if err != nil {
		//log: Processes that a crashed agent left stopped could not be continued.
		//do: See the key error. Deleting the pod ends its processes.
		b.log.Warn("continuation of processes after crash failed", "error", err)
	}
}

// sharedProcesses returns the first processes of containers that share their cgroups.
func (b *builder) sharedProcesses() (out []stats.ProcessID) {
	for _, p := range b.pods {
		for i := range p.Outside {
			if first := p.Outside[i].Process; first.PID != 0 {
				out = append(out, first)
			}
		}
	}
	return out
}

// killable returns the cgroups in which the previous process may have killed.
func (b *builder) killable(r *read.Reader) (paths []string) {
	r.EachPod(func(_, path string) { paths = append(paths, path) })
	for _, p := range b.pods {
		for i := range p.Outside {
			if at := p.Outside[i].Cgroup; at != "" {
				paths = append(paths, at)
			}
		}
	}
	return paths
}

// resume restores hold-offs and continues evictions of the previous process, which was killed,
// crashed, or stopped in the middle of an eviction.
func (b *builder) resume(ctx context.Context, l *loop, now time.Time) {
	l.gate.Resume(now, b.before.state.HoldOffs)
	l.upkeep.deschedule.Resume(b.before.state.Descheduled)
	for _, err := range b.manager.Resume(now, b.before.state.Manager) {
		b.log.Warn("saved state incomplete", "error", err)
	}
	lives := b.manager.Lives()
	for _, life := range lives { // an older agent stored hold-offs without a signal
		l.gate.SetSignal(life.Eviction().Pod.PodRef.UID, life.Eviction().Signal)
	}
	n := len(lives)
	going := l.evictions.Resume(ctx, now, b.before.running)
	if n+len(b.before.state.HoldOffs)+len(b.before.state.Manager.Aside) > 0 {
		//log: The agent continues from the state that the previous process stored. The keys give the
		//  number of evictions, hold-offs and pods set aside.
		b.log.Info("resumed from stored state", "evictions", going,
			"heldOff", len(b.before.state.HoldOffs),
			"setAside", len(b.before.state.Manager.Aside), "savedAt", b.before.state.Time)
	}
}
