package gate

import (
	"cmp"
	"slices"
	"time"

	"jettison/cri/nri"
	"jettison/eviction"
	"jettison/internal/node/records"
	"jettison/stats"
)

// Hold-off of a pod that was evicted and comes back under its UID. It doubles with each eviction,
// and is extended while the pressure lasts.
const (
	firstHold     = 10 * time.Second
	maxHold       = 5 * time.Minute
	extension     = 5 * time.Second // rest to which a hold-off is extended while the pressure lasts
	forgetAfter   = time.Hour       // time after its last eviction when a pod starts at firstHold again
	maxRemembered = 1000            // remembered pods
	// tearDownPeriod is the hold-off of a pod that is marked as evicted at the API server. The kubelet
	// tears the pod down, but first completes its current sync, which may start the pod again
	// (pkg/kubelet/kubelet.go SyncPod, v1.37.2: its runtime calls are not cancelled).
	tearDownPeriod = 2 * time.Minute
)

// HoldOffs are the pods in their hold-off. They belong to the loop; the plugin reads the shared
// part.
type HoldOffs struct {
	shared    nri.HoldOffs
	histories map[string]history     // by UID and by Owner.key
	owner     func(uid string) Owner // of a pod, as far as its object shows
	marked    func(uid string) bool  // the pod's object shows the eviction; nil: no objects are known
}

// history is the history of an evicted pod, or of its owner.
type history struct {
	times  int
	last   time.Time
	signal stats.Signal // of the eviction
	owner  Owner        // that brings the pod back
}

// StartHoldOff starts a victim's hold-off before it is stopped, until Evicted sets its end. It does
// not allocate.
func (h *HoldOffs) StartHoldOff(now time.Time, uid string) {
	h.shared.SetFirst(uid, nri.Hold{Until: now.Add(firstHold),
		Reason: "the pod is being evicted: the node is short of a resource that it uses"})
}

// Evicted sets the hold-off of an evicted pod, longer each time, and of the pods that replace it.
func (h *HoldOffs) Evicted(now time.Time, uid string, signal stats.Signal, message string) {
	var owner Owner
	if h.owner != nil {
		owner = h.owner(uid)
	}
	key := owner.key()
	if key == "" {
		owner = Owner{}
	}
	times := max(h.times(now, uid), h.times(now, key))
	if len(h.histories) > maxRemembered {
		clear(h.histories)
	}
	was := history{times: times + 1, last: now, signal: signal, owner: owner}
	until := now.Add(min(firstHold<<min(times, 10), maxHold))
	h.histories[uid] = was
	h.shared.Set(now, uid, nri.Hold{Until: until, Reason: message})
	if key != "" {
		h.histories[key] = was
		h.shared.Set(now, key, nri.Hold{Until: until, Reason: owner.reason(message)})
	}
}

// times returns the number of recent evictions of a pod or owner.
func (h *HoldOffs) times(now time.Time, key string) int {
	if was := h.histories[key]; key != "" && now.Sub(was.last) <= forgetAfter {
		return was.times
	}
	return 0
}

// Until returns the end of a pod's hold-off; zero without one.
func (h *HoldOffs) Until(uid string) time.Time { return h.shared.All()[uid].Until }

// Count returns the number of pods in their hold-off, by UID.
func (h *HoldOffs) Count(now time.Time) (n int) {
	for key, hold := range h.shared.All() {
		if hold.Until.After(now) && !isOwnerKey(key) {
			n++
		}
	}
	return n
}

// ExtendDying extends the hold-off of a pod while its eviction is in progress, and of the pods that
// replace it. It is called once a second.
func (h *HoldOffs) ExtendDying(now time.Time, uid, message string) (changed bool) {
	owner := h.histories[uid].owner
	for key, reason := range map[string]string{uid: message, owner.key(): owner.reason(message)} {
		if key == "" || h.shared.All()[key].Until.Sub(now) >= extension {
			continue
		}
		h.shared.Set(now, key, nri.Hold{Until: now.Add(firstHold), Reason: reason})
		changed = true
	}
	return changed
}

// ExtendLasting extends the hold-offs of pods while one of the met thresholds is the one that they
// were evicted for, and of pods that a kubelet has to tear down. It is called once a second.
func (h *HoldOffs) ExtendLasting(now time.Time, met []eviction.Met) (changed bool) {
	for uid, hold := range h.shared.All() {
		if !now.Before(hold.Until) || hold.Until.Sub(now) >= extension {
			continue
		}
		was := h.histories[uid]
		short := slices.ContainsFunc(met,
			func(m eviction.Met) bool { return m.Threshold.Signal == was.signal })
		if !short && (h.marked == nil || now.Sub(was.last) >= tearDownPeriod || !h.marked(uid)) {
			continue
		}
		hold.Until = now.Add(extension)
		h.shared.Set(now, uid, hold)
		changed = true
	}
	return changed
}

// Save returns the hold-offs that have not ended.
func (h *HoldOffs) Save(now time.Time) (out []records.HoldOff) {
	for key, hold := range h.shared.All() {
		if !now.Before(hold.Until) {
			continue
		}
		was := h.histories[key]
		saved := records.HoldOff{
			UID: key, Until: hold.Until, Reason: hold.Reason, Times: max(was.times, 1), Signal: was.signal,
			Owner: records.Owner(was.owner),
		}
		if isOwnerKey(key) {
			saved.UID = ""
		}
		out = append(out, saved)
	}
	return out
}

// Resume restores the hold-offs of the previous process.
func (h *HoldOffs) Resume(now time.Time, saved []records.HoldOff) {
	for _, s := range saved {
		owner := Owner(s.Owner)
		if key := cmp.Or(s.UID, owner.key()); key != "" {
			h.shared.Set(now, key, nri.Hold{Until: s.Until, Reason: s.Reason})
			h.histories[key] = history{times: s.Times, last: now, signal: s.Signal, owner: owner}
		}
	}
}

// SetSignal sets the signal of a resumed hold-off: the state of an older agent lacks it.
func (h *HoldOffs) SetSignal(uid string, signal stats.Signal) {
	was := h.histories[uid]
	was.signal = signal
	h.histories[uid] = was
}
