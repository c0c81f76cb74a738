package reclaim

import (
	"cmp"
	"maps"
	"time"
)

// Quiet is since when each pod has had neither a ready sandbox nor a running container, by UID.
type Quiet map[string]time.Time

// Update brings it up to date with what is seen now: pods that the runtime, the log directory or
// the kernel knows, and in which nothing lives. It begins anew for a pod that lives again, and with
// an agent that starts. A time after now is from a clock that was set back. q is not changed.
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
		// One that the runtime has lost does not keep its pod: it is stopped before it is removed.
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

// Phases are those of all pods that were seen, for Look.Pods: what clients and manifests name is as
// they say, but Active as long as the runtime runs a container of it; of the rest those are Gone
// that were quiet for podGoneAfter, and the others Active. PodsSynced is for the caller to say:
// whether the clients and manifests have been heard.
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
