package disk

import (
	"slices"
	"time"

	"jettison/stats"
	"jettison/stats/read/openfiles"
)

// limit is how old a figure may be: a few rounds. Where figures are wanted on demand only, demands
// are further apart than that, and a pod that is not walked within a few seconds would never have
// one.
func (l *Loop) limit(now time.Time) time.Duration {
	if l.lazy {
		return storageLimit
	}
	round := l.round
	if !l.began.IsZero() {
		round = max(round, now.Sub(l.began))
	}
	return min(storageLimit, max(5*l.every, 2*round))
}

// storageLimit is the age of the oldest figures that are shown, however long a round takes.
const storageLimit = openfiles.KeepFor

// Fill writes what is known of a pod's storage, once its memory is: what would not be freed comes
// off that.
func (l *Loop) Fill(now time.Time, p *stats.PodStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.pods[p.PodRef.UID]
	if s == nil || now.Sub(s.time) > l.limit(now) {
		return
	}
	st := &p.EphemeralStorage
	st.Volumes = append(st.Volumes[:0], s.volumes...)
	if !s.allLogs.Time.IsZero() {
		st.Logs = stats.Some(s.allLogs)
	}
	st.ExitedLayers, st.Files = s.beside()
	st.Cut = s.cut
	total, inMemory := s.sum()
	if st.Time = s.time; !total.Time.IsZero() {
		st.Time = total.Time
	}
	if !inMemory.Time.IsZero() && inMemory.Time.Before(st.Time) {
		st.Time = inMemory.Time
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if u, ok := s.layers[c.ID]; ok {
			c.Rootfs = stats.Some(u)
		}
		if u, ok := s.logs[c.Name]; ok {
			c.Logs = stats.Some(u)
		}
	}
	for id, u := range s.layers { // of one without a cgroup: it is not among them yet, or not any more
		if !slices.ContainsFunc(p.Containers, func(c stats.ContainerStats) bool { return c.ID == id }) {
			st.ExitedLayers.V.Merge(u)
			st.ExitedLayers.OK = true
		}
	}
	if !s.missing { // a sum with a part missing would be a lie
		st.UsedBytes, st.InodesUsed = stats.Some(total.Counted()),
			stats.Some(total.InodesUsed-total.KeptInodes)
		st.MemoryVolumesBytes = stats.Some(inMemory.UsedBytes)
		st.Partial = total.Partial
		// What lies in memory-backed volumes outlives the containers for sure.
		if f := &p.Memory.FreedBytes; f.OK {
			f.V.Max -= min(inMemory.UsedBytes, f.V.Max-f.V.Min)
		}
	}
}

// FillOpenFiles writes what is known of a pod's files without a name, once the node's file systems
// are.
func (l *Loop) FillOpenFiles(now time.Time, p *stats.PodStats, n *stats.NodeStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.pods[p.PodRef.UID]; s != nil && now.Sub(s.unnamed.Time) <= l.limit(now) {
		u := &s.unnamed
		p.EphemeralStorage.Unnamed = stats.UnnamedStats{Node: u.On(n.Fs), Image: u.On(n.ImageFs),
			Container: u.On(n.ContainerFs)}
	}
}

// Remains adds the UIDs of pods that are not among those on the node and whose directories are
// there still, as far as they were listed.
func (l *Loop) Remains(out []string, pods []stats.PodStats) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid := range l.dirs {
		is := func(p stats.PodStats) bool { return p.PodRef.UID == uid }
		if l.index[uid] == nil && !slices.ContainsFunc(pods, is) {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

// sum adds the parts up that limits know of, those in memory apart.
func (s *storage) sum() (total, inMemory stats.FsUsage) {
	total.Merge(s.allLogs)
	total.Merge(s.hosts)
	for _, v := range s.volumes {
		if v.Memory {
			inMemory.Merge(v.FsUsage)
		} else {
			total.Merge(v.FsUsage)
		}
	}
	for _, u := range s.layers {
		total.Merge(u)
	}
	return total, inMemory
}

// beside is what counts for the disks, but for no limit of the pod's own.
func (s *storage) beside() (exited, files stats.Opt[stats.FsUsage]) {
	for _, u := range s.exited {
		exited.V.Merge(u)
	}
	exited.V.Merge(s.runtimes)
	files.V.Merge(s.hosts)
	files.V.Merge(s.messages)
	exited.OK, files.OK = !exited.V.Time.IsZero(), !files.V.Time.IsZero()
	return exited, files
}
