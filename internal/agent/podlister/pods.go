package podlister

import (
	"time"

	"jettison/api"
	"jettison/cri/nri"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
	"jettison/stats/read"
)

// maxRequests limits the lists that are requested for one pod that only the kernel knows: its
// cgroup may have been left behind.
const maxRequests = 5

// searchInterval is the interval between two searches of the hierarchy for pods without events,
// while the runtime sends events.
const searchInterval = 10 * time.Second

// rereadInterval is the interval between two reads of details that an object contradicts. They may
// stay so: a container keeps its oom_score_adj after a resize.
const rereadInterval = 10 * time.Second

// Pods is the known state of the runtime's pods: the last list and the events since then. It
// belongs to the loop.
type Pods struct {
	*Lister
	log     *logthrottle.Logger
	changed func(read.Index)

	all         read.Index
	fromList    read.Index // all is merged from this and fromEvents
	fromEvents  runtimeEvents
	complete    bool                // events are complete
	unreachable bool                // the last list failed
	oversized   map[string]struct{} // UIDs of listed pods with a status that is too large
	placement   placement

	// pods that only the kernel knows, by UID: the number of lists requested for them
	requested map[string]int
	searched  time.Time // when the hierarchy was last searched for those
	reread    time.Time // when details of pods were last to be read again
}

// NewPods creates a Pods without pods. changed receives each new state, in the loop's goroutine.
func NewPods(l *Lister, log *logthrottle.Logger, changed func(read.Index)) *Pods {
	return &Pods{Lister: l, log: log, changed: changed, requested: map[string]int{},
		placement: placement{log: log}}
}

// All returns the pods by UID. The caller must not change the map; the next state is another map.
func (p *Pods) All() read.Index { return p.all }

// Unreachable reports whether the last list failed.
func (p *Pods) Unreachable() bool { return p.unreachable }

// Oversized returns the number of listed pods with a status that exceeds the agent's limit.
func (p *Pods) Oversized() int { return len(p.oversized) }

// OnListed processes an answer of the runtime. Loss and recovery are logged once each.
func (p *Pods) OnListed(u Update) {
	if u.Err != nil {
		if !p.unreachable {
			//log: The container runtime does not answer lists. The agent continues with the last list and
			//  the cgroups, and can still kill pods.
			//do: Check the container runtime and its socket. See the key error.
			p.log.Warn("runtime unreachable, continuing with kernel data", api.EventRuntime.Attr(),
				"error", u.Err)
		}
		p.unreachable = true
		return
	}
	if p.unreachable {
		//log: The container runtime answers lists again.
		p.log.Info("runtime reachable again", api.EventRuntime.Attr())
	}
	p.unreachable = false
	p.fromList = u.Pods
	p.fromEvents.dropMissing(u.Pods, u.Began)
	p.fromEvents.forget(u.Pods)
	p.logOversized()
	p.placement.onListed(u.Pods)
	p.merge()
}

// logOversized logs each pod with a status that is too large, once.
func (p *Pods) logOversized() {
	var now map[string]struct{}
	for uid, pod := range p.fromList {
		if !pod.StatusRefused() {
			continue
		}
		if now == nil {
			now = map[string]struct{}{}
		}
		now[uid] = struct{}{}
		if _, before := p.oversized[uid]; !before {
			//log: The runtime's status of this pod exceeds the agent's limit and is ignored. If the pod's
			//  request is unknown, the pod ranks as if it exceeded its request.
			//do: Check the pod's environment and annotations, or provide its pod object on the socket.
			p.log.Warn("pod status too large, ignored", api.EventPod.Attr(), "pod",
				pod.PodRef.Namespace+
					"/"+pod.PodRef.Name, "uid", uid)
		}
	}
	p.oversized = now
}

// OnEvents processes the runtime's events; all is false while they are incomplete.
func (p *Pods) OnEvents(now time.Time, pods nri.Pods, all bool) {
	if p.complete && !all { // pods known only from events stay until the next list
		p.fromList = p.all
		p.Ask()
	}
	p.complete = all
	p.SetEvents(all)
	if p.fromEvents.recordStopped(pods, all) {
		p.Ask() // the list shows their remains
	}
	changed := p.fromEvents.changedContainers(pods, p.fromList)
	p.Changed(changed)
	if p.placement.outside && len(changed) > 0 {
		p.Ask() // events do not show where a container runs
	}
	p.fromEvents.update(now, pods)
	p.searched = time.Time{}
	p.merge()
}

// Ended reports whether a sandbox of a pod, with all its containers, ended after it was listed. It
// holds no resources although All contains it.
func (p *Pods) Ended(uid, sandbox string) bool {
	if p.complete {
		return p.fromEvents.ended(uid, sandbox, nil)
	}
	return p.fromEvents.ended(uid, sandbox, p.fromList)
}

// OnCleaned records sandboxes that were stopped without remaining processes, and requests a list.
func (p *Pods) OnCleaned(sandboxes []string) {
	for _, id := range sandboxes {
		p.fromEvents.markStopped(id, true)
	}
	p.Ask()
}

// merge merges the list and the events.
func (p *Pods) merge() {
	p.all = overlay(p.fromList, p.fromEvents.index)
	p.changed(p.all)
}

// RequestIfNeeded requests a list if a pod is known only to the kernel or a shortage is near.
// strangers searches the hierarchy for such pods.
func (p *Pods) RequestIfNeeded(now time.Time, near bool,
	strangers func(read.Index, func(uid string))) {
	if p.complete && !near && now.Sub(p.searched) < searchInterval {
		return
	}
	p.searched = now
	here, ask := map[string]int{}, false
	strangers(p.all, func(uid string) {
		here[uid] = p.requested[uid]
		if here[uid] < maxRequests {
			here[uid]++
			ask = true
		}
	})
	p.requested = here
	if ask || near {
		p.Ask()
	}
}

// Reread lets the next list read the containers' details of pods again, once in rereadInterval. uids
// visits the pods whose details may be outdated: an object without an allocation requests more, and
// a resize in place may be newer than the details.
func (p *Pods) Reread(now time.Time, uids func(visit func(uid string))) {
	if now.Sub(p.reread) < rereadInterval {
		return
	}
	var ids []string
	uids(func(uid string) {
		if pod := p.all[uid]; pod != nil {
			for i := range pod.Containers {
				ids = append(ids, pod.Containers[i].ID)
			}
		}
	})
	if len(ids) > 0 {
		p.reread = now
		p.Changed(ids)
	}
}

// HasUnlisted reports whether a look found pods that the runtime has not listed. A pod that stayed
// unlisted after the last request delays no kill.
func (p *Pods) HasUnlisted(s *stats.Summary) bool {
	for i := range s.Pods {
		pod := &s.Pods[i]
		if !pod.Announced && pod.Populated.V && p.requested[pod.PodRef.UID] < maxRequests {
			return true
		}
	}
	return false
}

// Ref completes a reference with the current data of the runtime, which may have been missing when
// it was made.
func (p *Pods) Ref(ref stats.PodReference) stats.PodReference {
	if known := p.all[ref.UID]; ref.Name == "" && known != nil {
		return known.PodRef
	}
	return ref
}

// Name returns a pod's namespace and name for display.
func (p *Pods) Name(ref stats.PodReference) string {
	ref = p.Ref(ref)
	if ref.Name == "" {
		return "uid:" + ref.UID
	}
	return ref.Namespace + "/" + ref.Name
}
