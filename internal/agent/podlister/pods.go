package podlister

import (
	"time"

	"jettison/api"
	"jettison/cri/nri"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
	"jettison/stats/read"
)

// asks bounds how often the runtime is asked about one pod that only the kernel knows: a cgroup may
// be left behind by a pod that is gone for good.
const asks = 5

// countTold is the time between two searches of the hierarchy for pods that the runtime has not
// told of, where it tells of its pods.
const countTold = 10 * time.Second

// Pods is what is known of the runtime's pods: what it listed last, and what it told its plugin
// since. It belongs to the loop.
type Pods struct {
	*Lister
	log     *logthrottle.Logger
	changed func(read.Index)

	all        read.Index
	fromList   read.Index // what all is made of, with the next
	fromEvents told
	every      bool                // events tell of every change
	lost       bool                // the runtime did not answer last time
	refused    map[string]struct{} // UIDs of listed pods whose status is too large

	// pods that only the kernel knows, by UID: how often the runtime was asked about them
	asked   map[string]int
	counted time.Time // when the hierarchy was last searched for those
}

// NewPods makes a Pods that knows of none. changed gets each new state of them, in the loop's
// goroutine.
func NewPods(l *Lister, log *logthrottle.Logger, changed func(read.Index)) *Pods {
	return &Pods{Lister: l, log: log, changed: changed, asked: map[string]int{}}
}

// All are the pods, by UID. The map must not be changed; the next state of them is another map.
func (p *Pods) All() read.Index { return p.all }

// Lost reports that the runtime did not answer last time.
func (p *Pods) Lost() bool { return p.lost }

// Refused is how many listed pods have a status that is larger than is taken of one.
func (p *Pods) Refused() int { return len(p.refused) }

// OnListed takes an answer of the runtime. Its loss and its return are logged once each.
func (p *Pods) OnListed(u Update) {
	if u.Err != nil {
		if !p.lost {
			p.log.Warn("lost the runtime, going on with what the kernel tells", api.EventRuntime.Attr(),
				"error", u.Err)
		}
		p.lost = true
		return
	}
	if p.lost {
		p.log.Info("the runtime is back", api.EventRuntime.Attr())
	}
	p.lost = false
	p.fromList = u.Pods
	p.fromEvents.forget(u.Pods)
	p.sayRefused()
	p.join()
}

// sayRefused logs each pod whose status is too large, once.
func (p *Pods) sayRefused() {
	var now map[string]struct{}
	for uid, pod := range p.fromList {
		if !pod.Refused() {
			continue
		}
		if now == nil {
			now = map[string]struct{}{}
		}
		now[uid] = struct{}{}
		if _, before := p.refused[uid]; !before {
			p.log.Warn("the runtime's status of a pod is larger than the agent takes: if its request is "+
				"unknown it counts as over it; "+
				"look at its environment and annotations, or hand over its object", api.EventPod.Attr(), "pod",
				pod.PodRef.Namespace+
					"/"+pod.PodRef.Name, "uid", uid)
		}
	}
	p.refused = now
}

// OnTold takes what the runtime told its plugin; all is false while that does not tell of every
// change.
func (p *Pods) OnTold(pods nri.Pods, all bool) {
	if p.every && !all { // what only events told stays known until the next list
		p.fromList = p.all
		p.Ask()
	}
	p.every = all
	p.Told(all)
	if p.fromEvents.stops(pods, all) {
		p.Ask() // the list knows more of what is left
	}
	p.Changed(p.fromEvents.changes(pods, p.fromList))
	p.fromEvents.take(pods)
	p.counted = time.Time{}
	p.join()
}

// Ended reports whether a sandbox of a pod has ended since it was listed, with all its containers.
// It holds no room, though it is among All.
func (p *Pods) Ended(uid, sandbox string) bool {
	if p.every {
		return p.fromEvents.ended(uid, sandbox, nil)
	}
	return p.fromEvents.ended(uid, sandbox, p.fromList)
}

// Cleaned takes that sandboxes were stopped, and nothing of them is left: no list need say so.
func (p *Pods) Cleaned(sandboxes []string) {
	for _, id := range sandboxes {
		p.fromEvents.stop(id, true)
	}
	p.Ask()
}

// join makes one of what was listed and what was told since.
func (p *Pods) join() {
	p.all = overlay(p.fromList, p.fromEvents.index)
	p.changed(p.all)
}

// KeepUp has the runtime listed when there is something to learn: a pod that only the kernel knows,
// or a shortage near. strangers searches the hierarchy for the former.
func (p *Pods) KeepUp(now time.Time, near bool, strangers func(read.Index, func(uid string))) {
	if p.every && !near && now.Sub(p.counted) < countTold {
		return
	}
	p.counted = now
	here, ask := map[string]int{}, false
	strangers(p.all, func(uid string) {
		here[uid] = p.asked[uid]
		if here[uid] < asks {
			here[uid]++
			ask = true
		}
	})
	p.asked = here
	if ask || near {
		p.Ask()
	}
}

// Strangers reports whether a look has found pods that the runtime has not told of. One that it was
// asked about in vain often enough holds up no kill any more.
func (p *Pods) Strangers(s *stats.Summary) bool {
	for i := range s.Pods {
		pod := &s.Pods[i]
		if !pod.Announced && pod.Populated.V && p.asked[pod.PodRef.UID] < asks {
			return true
		}
	}
	return false
}

// Ref completes a reference: where the runtime had not told of the pod yet, what it has told since
// counts.
func (p *Pods) Ref(ref stats.PodReference) stats.PodReference {
	if known := p.all[ref.UID]; ref.Name == "" && known != nil {
		return known.PodRef
	}
	return ref
}

// Name is a pod's namespace and name, for people.
func (p *Pods) Name(ref stats.PodReference) string {
	ref = p.Ref(ref)
	if ref.Name == "" {
		return "uid:" + ref.UID
	}
	return ref.Namespace + "/" + ref.Name
}
