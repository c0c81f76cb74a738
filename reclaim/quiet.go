package reclaim

import (
	"cmp"
	"maps"
	"time"
)

// Quiet holds, by UID, the time since which each pod has had neither a ready sandbox nor a running
// container nor a populated cgroup.
type Quiet map[string]time.Time

// Update returns the quiet pods of a new look: pods that the runtime, the log directory or the
// kernel lists and in which nothing runs. The time of a pod starts again after the pod has run, and
// after a restart of the agent. A time after now comes from a clock that was set back and becomes
// now. Update does not change q.
func (q Quiet) Update(now time.Time, l *Look) Quiet {
	out, lives := Quiet{}, map[string]bool{}
	sandboxes := make(map[string]string, len(l.Sandboxes)) // UIDs
	seen := func(uid string, alive bool) {
		if uid == "" {
			return
		}
		lives[uid] = lives[uid] || alive
		since, ok := q[uid]
		if !ok || since.After(now) {
			since = now
		}
		out[uid] = since
	}
	for i := range l.Sandboxes {
		s := &l.Sandboxes[i]
		sandboxes[s.ID] = s.PodUID
		seen(s.PodUID, !s.NotReady)
	}
	for i := range l.Containers {
		c := &l.Containers[i]
		// A container in state Unknown does not count as alive: it is stopped before it is removed.
		alive := c.State == Running || c.State == StateAbsent
		seen(c.PodUID, alive)
		seen(sandboxes[c.SandboxID], alive)
	}
	for _, name := range l.LogDir {
		seen(PodOfLogDir(name), false)
	}
	for i := range l.Cgroups {
		seen(l.Cgroups[i].PodUID, l.Cgroups[i].Populated)
	}
	maps.DeleteFunc(out, func(uid string, _ time.Time) bool { return lives[uid] })
	return out
}

// Phases returns the phase of each pod in a look, for Look.Pods. Pods that clients and manifests
// name keep their phase, but are Active while the runtime runs one of their containers. Other pods
// are Gone after being quiet for podGoneAfter, and Active before. The caller sets PodsSynced
// itself: it knows whether all clients and manifests have been read.
func Phases(now time.Time, l *Look, q Quiet, named map[string]Phase,
	podGoneAfter time.Duration) map[string]Phase {
	out := maps.Clone(named)
	if out == nil {
		out = map[string]Phase{}
	}
	see := func(uid string) {
		if _, ok := named[uid]; ok || uid == "" {
			return
		}
		if since, ok := q[uid]; ok && now.Sub(since) >= podGoneAfter {
			out[uid] = Gone
		} else {
			out[uid] = Active
		}
	}
	sandboxes := make(map[string]string, len(l.Sandboxes)) // UIDs
	for i := range l.Sandboxes {
		s := &l.Sandboxes[i]
		sandboxes[s.ID] = s.PodUID
		see(s.PodUID)
	}
	for i := range l.Containers {
		c := &l.Containers[i]
		see(c.PodUID)
		if uid := cmp.Or(c.PodUID, sandboxes[c.SandboxID]); c.State == Running && uid != "" {
			out[uid] = Active
		}
	}
	for _, name := range l.LogDir {
		see(PodOfLogDir(name))
	}
	for i := range l.Cgroups {
		see(l.Cgroups[i].PodUID)
	}
	return out
}
