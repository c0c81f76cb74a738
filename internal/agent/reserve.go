package agent

import (
	"context"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/api"
	"jettison/cgroup"
	"jettison/eviction"
	"jettison/internal/node/config"
	"jettison/internal/node/limits"
)

// reserved is what a node of such a capacity keeps back from pods.
func reserved(c *config.Loaded, capacity v1.ResourceList) admit.Reserved {
	r := c.Reserved
	r.Eviction = eviction.HardReservation(c.Thresholds, capacity)
	return r
}

// reserved is what this node keeps back from pods.
func (l *loop) reserved(capacity v1.ResourceList) admit.Reserved {
	return reserved(l.o.Config, capacity)
}

// enforced is what the cgroup above all pods may have: what is allocatable, or all of it where pods
// are not enforced.
func (l *loop) enforced(capacity v1.ResourceList) v1.ResourceList {
	if !l.o.Config.EnforcesPods() {
		return capacity
	}
	return admit.Enforced(capacity, l.o.Config.Reserved)
}

// shares are what this node has and what of it is pods'.
func (l *loop) shares() limits.Node {
	has := l.capacity()
	return limits.Node{Capacity: has, Enforced: l.enforced(has),
		Left: admit.Enforced(has, l.o.Config.Reserved)}
}

// teller is who tells systemd: nobody, where pods' cgroups are none of its slices.
func (b *builder) teller() limits.Teller {
	// another hierarchy than that of systemd here
	if b.o.CgroupMount != "" && path.Clean(b.o.CgroupMount) != cgroup.DefaultMount {
		return nil
	}
	return limits.TellSystemd(b.o.HostRoot)
}

// unlimit puts back what an agent before this one has left in cgroups of pods; what it cannot now,
// the loop does later.
func (b *builder) unlimit(ctx context.Context, l *loop) {
	if b.o.DryRun {
		return
	}
	r := limits.Mend(ctx, b.s.FS, b.o.Config.CgroupRoot, b.o.Config.WriteAllocatable, l.kubelet.Found,
		b.teller())
	b.before.left = r.Left
	if r.Restored > 0 {
		b.log.Info("put back what was written to cgroups of pods", api.EventMemory.Attr(), "restored",
			r.Restored)
	}
	if r.Err != nil {
		b.log.Warn("not as it should be", "error", r.Err)
	}
}

// limit begins to write to cgroups of pods, where the configuration says so, and to put back what
// is left there. A dry run does neither.
func (b *builder) limit(l *loop) {
	c := b.o.Config
	capacity := l.capacity()
	if fields := limits.Told(capacity, l.reserved(capacity)); fields != nil {
		b.log.Info("allocatable", fields...)
	}
	if b.o.DryRun || !c.WriteAllocatable && !c.MemoryQoS && b.before.left == (limits.Left{}) {
		return
	}
	fs, err := cgroup.OpenTree(b.s.FS.Mount()) // its own: a pass may outlive what the others read
	if err != nil {
		b.log.Warn("nothing is written to cgroups of pods", api.EventMemory.Attr(), "error", err)
		if b.before.left.Protection { // it stays, and nothing is added to it
			l.upkeep.own = nil
		}
		return
	}
	l.upkeep.limits = limits.New(limits.Options{
		FS: fs, CgroupRoot: c.CgroupRoot, Allocatable: c.WriteAllocatable, MemoryQoS: c.MemoryQoS,
		Factor: c.MemoryThrottlingFactor,
		Left:   b.before.left, Node: l.shares,
		Self: strings.Trim(l.looks.Reader().Self(), "/"), Kubelet: b.kubelet, Objects: b.objects.All,
		Tell: b.teller(), Log: b.log,
	})
	b.closing(l.upkeep.limits.Close)
}
