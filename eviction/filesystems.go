package eviction

import "jettison/stats"

// fileSystems holds the layout of the file systems and computes pods' usage of each.
type fileSystems struct {
	layout  stats.Opt[stats.Layout] // last known layout
	foreign bool                    // Input.Foreign of the last step
	// disks are the last known devices by which io.stat counts, by file system; 0: unknown
	disks [containerFs + 1]uint64
}

// sameDisk reports whether the file systems of two signals are the same, by the layout. While the
// layout is unknown all count as one, and no pod is evicted.
func (d *fileSystems) sameDisk(a, b fileSystem) bool {
	l := d.layout.V
	switch {
	case a == b || !d.layout.OK || !l.DedicatedImageFs:
		return true
	// nodefs holds the writable layers unless they are on the images' file system
	case a == nodeFs || b == nodeFs:
		return l.SplitContainerFs && (a == containerFs || b == containerFs)
	}
	return !l.SplitContainerFs
}

// diskOf returns the first file system that is the same as another one.
func (d *fileSystems) diskOf(fs fileSystem) fileSystem {
	for first := nodeFs; first < fs; first++ {
		if d.sameDisk(first, fs) {
			return first
		}
	}
	return fs
}

// namedUsage returns a pod's usage of a threshold's file system, by the layout
// (pkg/kubelet/eviction/helpers.go buildSignalToRankFunc):
//
//	layout            nodefs                  imagefs           containerfs
//	one               layers, logs, volumes   the same          the same
//	dedicated imagefs logs, volumes           layers            layers
//	split             layers, logs, volumes   nothing           as nodefs
//
// It is absent if no counted part was measured; in rows with "nothing", if no part was
// measured.
func (d *fileSystems) namedUsage(c *Candidate, w *watched) (total stats.Opt[uint64]) {
	countsNothing := d.layout.V.DedicatedImageFs && d.layout.V.SplitContainerFs && w.info.fs == imageFs
	d.eachPart(c, w, func(u *stats.FsUsage) {
		v := u.UsedBytes
		if w.info.kind == kindInodes {
			v = u.InodesUsed
		}
		if countsNothing {
			v = 0
		}
		total = stats.Some(stats.SaturatingAdd(total.V, v))
	})
	return total
}

// eachPart visits the measured parts of a pod on a threshold's file system. For imagefs in the
// split layout, where no part counts, it visits all measured parts.
func (d *fileSystems) eachPart(c *Candidate, w *watched, visit func(u *stats.FsUsage)) {
	apart := d.layout.V.DedicatedImageFs && !d.layout.V.SplitContainerFs
	layers, files := !apart || w.info.fs != nodeFs, !apart || w.info.fs == nodeFs
	s := &c.Pod.EphemeralStorage
	if files && s.Logs.OK {
		visit(&s.Logs.V)
	}
	if files && s.Files.OK {
		visit(&s.Files.V)
	}
	if layers && s.ExitedLayers.OK {
		visit(&s.ExitedLayers.V)
	}
	for i := range c.Pod.Containers {
		container := &c.Pod.Containers[i]
		if layers && container.Rootfs.OK {
			visit(&container.Rootfs.V)
		}
		if files && !s.Logs.OK && container.Logs.OK {
			visit(&container.Logs.V)
		}
	}
	for i := range s.Volumes {
		if v := &s.Volumes[i]; files && d.countsAsDisk(v, c.Object) {
			visit(&v.FsUsage)
		}
	}
}

// countsAsDisk reports whether a volume is on disk. Volumes in memory are not. In the agent's own
// Summary all others are, because the agent measures only local volumes. In a foreign Summary the
// pod object decides, if known.
func (d *fileSystems) countsAsDisk(v *stats.VolumeStats, object *Pod) bool {
	if v.Memory {
		return false
	}
	if object == nil || !d.foreign {
		return true
	}
	_, ok := object.localVolumes[v.Name]
	return ok
}

// usage returns a pod's usage of a threshold's file system, with files without a name.
func (d *fileSystems) usage(c *Candidate, w *watched) stats.Opt[uint64] {
	use := d.namedUsage(c, w)
	if u := unnamed(c, w); u.OK {
		use = stats.Some(stats.SaturatingAdd(use.V, inUnit(&u.V, w)))
	}
	return use
}

// unnamed returns the usage of files without a name that the pod's processes keep open.
func unnamed(c *Candidate, w *watched) stats.Opt[stats.FsUsage] {
	u := &c.Pod.EphemeralStorage.Unnamed
	return [...]stats.Opt[stats.FsUsage]{nodeFs: u.Node, imageFs: u.Image,
		containerFs: u.Container}[w.info.fs]
}

func inUnit(u *stats.FsUsage, w *watched) uint64 {
	if w.info.kind == kindInodes {
		return u.InodesUsed
	}
	return u.UsedBytes
}

// heldByPod returns each pod's known usage of a disk, protected pods included, at most the use of
// the disk.
func (d *fileSystems) heldByPod(in Input, w *watched) map[string]uint64 {
	pods := make(map[string]uint64, len(in.Summary.Pods))
	for i := range in.Summary.Pods {
		c := Candidate{Pod: &in.Summary.Pods[i], Object: in.Pods[in.Summary.Pods[i].PodRef.UID]}
		if u := d.usage(&c, w); u.OK && u.V <= implausible {
			pods[c.Pod.PodRef.UID] = min(u.V, used(&w.observed))
		}
	}
	return pods
}

// complete reports whether all of a pod's files were measured. A measurement without a time, as in
// a kubelet's Summary, counts as complete.
func (d *fileSystems) complete(c *Candidate, w *watched) bool {
	s := &c.Pod.EphemeralStorage
	return !s.Cut && !atLeast(c, w) && (s.Time.IsZero() || s.UsedBytes.OK)
}

// writesUnmeasured reports whether a pod may write to volumes that are not measured: to a hostPath
// volume, or to a persistent volume. That is often on another disk, so it counts only if writes are
// known by disk.
func (d *fileSystems) writesUnmeasured(c *Candidate, w *watched) bool {
	byDisk := w.info.kind != kindInodes && d.disks[w.info.fs] != 0
	return c.Object != nil && (c.Object.writesHost || c.Object.writesClaim && byDisk)
}

// atLeast reports whether a pod's known disk usage is a lower bound. The ranking uses the bound as
// the value.
func atLeast(c *Candidate, w *watched) bool {
	s := &c.Pod.EphemeralStorage
	if s.Logs.V.Partial || s.Files.V.Partial || s.ExitedLayers.V.Partial || unnamed(c, w).V.Partial {
		return true
	}
	for i := range s.Volumes {
		if s.Volumes[i].Partial {
			return true
		}
	}
	for i := range c.Pod.Containers {
		if p := &c.Pod.Containers[i]; p.Rootfs.V.Partial || p.Logs.V.Partial {
			return true
		}
	}
	return false
}
