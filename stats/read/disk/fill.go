package disk

import (
	"slices"
	"time"

	"jettison/stats"
	"jettison/stats/read/openfiles"
)

// maxAge returns the maximum age of a measurement that Fill uses: a few rounds. In lazy mode it is
// longer. Demands are further apart then, and a pod that cannot be walked within seconds would
// never have a value.
func (l *Loop) maxAge(now time.Time) time.Duration {
	if l.lazy {
		return storageLimit
	}
	round := l.round
	if !l.began.IsZero() {
		round = max(round, now.Sub(l.began))
	}
	return min(storageLimit, max(5*l.every, 2*round))
}

// storageLimit is the maximum age of a measurement that Fill uses, even if a round takes longer.
const storageLimit = openfiles.KeepFor

// Fill writes a pod's latest disk usage into p. p.Memory must be filled in before, because Fill
// subtracts memory that a kill would not free.
func (l *Loop) Fill(now time.Time, p *stats.PodStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.pods[p.PodRef.UID]
	if s == nil || now.Sub(s.time) > l.maxAge(now) {
		return
	}
	st := &p.EphemeralStorage
	st.Volumes = append(st.Volumes[:0], s.volumes...)
	if !s.allLogs.Time.IsZero() {
		st.Logs = stats.Some(s.allLogs)
	}
	st.ExitedLayers, st.Files = s.outsideLimits()
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
	for id, u := range s.layers { // the layer of a container that p does not list yet, or no longer
		if !slices.ContainsFunc(p.Containers, func(c stats.ContainerStats) bool { return c.ID == id }) {
			st.ExitedLayers.V.Merge(u)
			st.ExitedLayers.OK = true
		}
	}
	if !s.missing { // a sum without one of its parts would be wrong
		st.UsedBytes, st.InodesUsed = stats.Some(total.Counted()),
			stats.Some(total.InodesUsed-total.KeptInodes)
		st.MemoryVolumesBytes = stats.Some(inMemory.UsedBytes)
		st.Partial = total.Partial
		// Content of memory-backed volumes outlives the containers.
		if f := &p.Memory.FreedBytes; f.OK {
			f.V.Max -= min(inMemory.UsedBytes, f.V.Max-f.V.Min)
		}
	}
}

// FillOpenFiles writes the latest usage of a pod's files without a name into p. The node's file
// systems must be filled in before.
func (l *Loop) FillOpenFiles(now time.Time, p *stats.PodStats, n *stats.NodeStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.pods[p.PodRef.UID]; s != nil && now.Sub(s.unnamed.Time) <= l.maxAge(now) {
		u := &s.unnamed
		p.EphemeralStorage.Unnamed = stats.UnnamedStats{Node: u.On(n.Fs), Image: u.On(n.ImageFs),
			Container: u.On(n.ContainerFs)}
	}
}

// Remains appends the UIDs of pods that are no longer on the node but had directories in the last
// listing.
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

// sum adds up the parts that count for limits on disk usage, with those on tmpfs separate.
func (s *storage) sum() (total, inMemory stats.FsUsage) {
	total.Merge(s.allLogs)
	total.Merge(s.etcHosts)
	for _, v := range s.volumes {
		switch {
		case v.HugePages:
		case v.Memory:
			inMemory.Merge(v.FsUsage)
		default:
			total.Merge(v.FsUsage)
		}
	}
	for _, u := range s.layers {
		total.Merge(u)
	}
	return total, inMemory
}

// outsideLimits adds up the parts that use disks, but that no limit of the pod counts, and
// etc-hosts.
func (s *storage) outsideLimits() (exited, files stats.Opt[stats.FsUsage]) {
	for _, u := range s.exited {
		exited.V.Merge(u)
	}
	exited.V.Merge(s.runtimeFiles)
	files.V.Merge(s.etcHosts)
	files.V.Merge(s.messages)
	exited.OK, files.OK = !exited.V.Time.IsZero(), !files.V.Time.IsZero()
	return exited, files
}
