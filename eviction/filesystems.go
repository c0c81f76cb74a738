package eviction

import "jettison/stats"

// fileSystems knows the layout of the file systems, and tells what a pod takes of each.
type fileSystems struct {
	layout  stats.Opt[stats.Layout] // as last known
	foreign bool                    // Input.Foreign of the last step
}

// sameDisk reports whether two signals speak of one file system, by the layout. While that is not
// known all are one: no pod goes then.
func (d *fileSystems) sameDisk(a, b fileSystem) bool {
	l := d.layout.V
	switch {
	case a == b || !d.layout.OK || !l.DedicatedImageFs:
		return true
	// the writable layers lie there where they do not lie with the images
	case a == nodeFs || b == nodeFs:
		return l.SplitContainerFs && (a == containerFs || b == containerFs)
	}
	return !l.SplitContainerFs
}

// usage is what a pod takes of the file system that the threshold is for, by the layout
// (pkg/kubelet/eviction/helpers.go buildSignalToRankFunc):
//
//	layout            nodefs                  imagefs           containerfs
//	one               layers, logs, volumes   the same          the same
//	dedicated imagefs logs, volumes           layers            layers
//	split             layers, logs, volumes   nothing           as nodefs
//
// Absent: no part of it was measured; where nothing counts, no part at all.
func (d *fileSystems) usage(c *Candidate, w *watched) (total stats.Opt[uint64]) {
	nothing := d.layout.V.DedicatedImageFs && d.layout.V.SplitContainerFs && w.info.fs == imageFs
	d.eachPart(c, w, func(u *stats.FsUsage) {
		v := u.UsedBytes
		if w.info.kind == kindInodes {
			v = u.InodesUsed
		}
		if nothing {
			v = 0
		}
		total = stats.Some(stats.SaturatingAdd(total.V, v))
	})
	return total
}

// eachPart goes through the parts of a pod that were measured and lie on the file system that the
// threshold is for; where nothing counts, through all.
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

// countsAsDisk: a volume in memory takes no disk. Of the others all count, for only local volumes
// are measured; in a foreign Summary those do that the object calls local, if there is one.
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

// use is what a pod takes of the file system that a threshold is for, files without a name
// included.
func (d *fileSystems) use(c *Candidate, w *watched) stats.Opt[uint64] {
	use := d.usage(c, w)
	if u := unnamed(c, w); u.OK {
		use = stats.Some(stats.SaturatingAdd(use.V, inUnit(&u.V, w)))
	}
	return use
}

// unnamed is what a pod's processes keep there of files without a name.
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

// held is what each pod is known to hold of a disk, protected ones too: no more than is used of it.
func (d *fileSystems) held(in Input, w *watched) map[string]uint64 {
	pods := make(map[string]uint64, len(in.Summary.Pods))
	for i := range in.Summary.Pods {
		c := Candidate{Pod: &in.Summary.Pods[i], Object: in.Pods[in.Summary.Pods[i].PodRef.UID]}
		if u := d.use(&c, w); u.OK && u.V <= implausible {
			pods[c.Pod.PodRef.UID] = min(u.V, used(&w.observed))
		}
	}
	return pods
}

// atLeast reports whether what is known of a pod's disk usage is a lower bound. It is compared as
// that figure.
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
