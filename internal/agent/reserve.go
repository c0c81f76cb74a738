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

// reserved returns the reservations of a node with the given capacity.
func reserved(c *config.Loaded, capacity v1.ResourceList) admit.Reserved {
	r := c.Reserved
	r.Eviction = eviction.HardReservation(c.Thresholds, capacity)
	return r
}

// reserved returns the reservations of this node.
func (l *loop) reserved(capacity v1.ResourceList) admit.Reserved {
	return reserved(l.o.Config, capacity)
}

// enforcedLimits returns the limits of the cgroup above all pods: the allocatable amounts, or the
// capacity if pods are not enforced.
func (l *loop) enforcedLimits(capacity v1.ResourceList) v1.ResourceList {
	if !l.o.Config.EnforcesPods() {
		return capacity
	}
	return admit.Enforced(capacity, l.o.Config.Reserved)
}

// nodeShares returns the node's capacity and the pods' part of it.
func (l *loop) nodeShares() limits.Node {
	has := l.capacity()
	return limits.Node{Capacity: has, Enforced: l.enforcedLimits(has),
		Left: admit.Enforced(has, l.o.Config.Reserved)}
}

// systemdTeller returns the client for systemd; nil if the pods' cgroups are not slices of this
// systemd.
func (b *builder) systemdTeller() limits.Updater {
	// a hierarchy other than systemd's
	if b.o.CgroupMount != "" && path.Clean(b.o.CgroupMount) != cgroup.DefaultMount {
		return nil
	}
	return limits.SystemdUpdater(b.o.HostRoot)
}

// restoreLimits restores the settings that an earlier agent left in cgroups of pods; the loop
// retries failures.
func (b *builder) restoreLimits(ctx context.Context, l *loop) {
	if b.o.DryRun {
		return
	}
	r := limits.Restore(ctx, b.s.FS, b.o.Config.CgroupRoot, b.o.Config.WriteAllocatable, l.kubelet.Found,
		b.systemdTeller())
	b.before.left = r.Left
	if r.Restored > 0 {
		b.log.Info("restored pod cgroup settings", api.EventMemory.Attr(), "restored",
			r.Restored)
	}
	if r.Err != nil {
		//log: Settings that an earlier agent wrote to cgroups of pods could not be restored yet. The
		//  agent retries.
		//do: See the key error.
		b.log.Warn("restore of pod cgroup settings failed", "error", r.Err)
	}
}

// startLimits starts to write and restore settings in cgroups of pods, if the configuration
// enables it or an earlier agent left some. A dry run does neither.
func (b *builder) startLimits(l *loop) {
	c := b.o.Config
	capacity := l.capacity()
	if fields := limits.AllocatableFields(capacity, l.reserved(capacity)); fields != nil {
		//log: The resources that pods may request in total on this node. The keys are the
		//  resources: cpu, memory, ephemeral-storage and pid.
		b.log.Info("allocatable resources", fields...)
	}
	if b.o.DryRun || !c.WriteAllocatable && !c.MemoryQoS && b.before.left == (limits.Remaining{}) {
		return
	}
	fs, err := cgroup.OpenTree(b.s.FS.Mount()) // separate: a pass may outlive other readers
	if err != nil {
		//log: The cgroups could not be opened for writing. Node allocatable and memory protection of pods
		//  are not applied.
		//do: See the key error.
		b.log.Warn("pod cgroup settings not written", api.EventMemory.Attr(), "error", err)
		if b.before.left.Protection { // the old protection stays unchanged
			l.upkeep.own = nil
		}
		return
	}
	l.upkeep.limits = limits.New(limits.Options{
		FS: fs, CgroupRoot: c.CgroupRoot, Allocatable: c.WriteAllocatable, MemoryQoS: c.MemoryQoS,
		Factor: c.MemoryThrottlingFactor,
		Left:   b.before.left, Node: l.nodeShares,
		Self: strings.Trim(l.looks.Reader().Self(), "/"), Kubelet: b.kubeletNow,
		Objects: b.objects.Provided, Tell: b.systemdTeller(), Log: b.log,
	})
	b.onCloseErr(l.upkeep.limits.Close)
}
