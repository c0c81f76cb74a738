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

// How long a pod that was evicted is kept out when it comes back under its UID: doubled each time,
// and as long as the pressure lasts.
const (
	holdFirst = 10 * time.Second
	holdMax   = 5 * time.Minute
	holdOnFor = 5 * time.Second // beyond each look at which its pressure is still there
	forget    = time.Hour       // after its last eviction a pod starts at holdFirst again
	mostHeld  = 1000            // pods that are remembered
	// tearDown is how long after its eviction a pod is kept out that is marked as evicted at the API:
	// a kubelet tears it down then, but first it goes on with what it is at, and starting the pod anew
	// may be that (pkg/kubelet/kubelet.go SyncPod, v1.36.3: the runtime's part of it is not
	// cancelled).
	tearDown = 2 * time.Minute
)

// HoldOffs are the pods that are kept out. They belong to the loop; the runtime's plugin reads what
// they share.
type HoldOffs struct {
	shared nri.HoldOffs
	held   map[string]heldOff     // who was kept out, by UID and by Owner.key
	owner  func(uid string) Owner // of a pod, as far as its object tells
	marked func(uid string) bool  // a pod's object says that it was evicted; nil: no objects are known
}

// heldOff is what is remembered of a pod that was kept out, or of what brings it back.
type heldOff struct {
	times  int
	last   time.Time
	signal stats.Signal // that it was evicted for
	owner  Owner        // that brings it back
}

// AtOnce keeps a victim out from before it is stopped, until Evicted says how long. It does not
// allocate.
func (h *HoldOffs) AtOnce(now time.Time, uid string) {
	h.shared.SetAtOnce(uid, nri.Hold{Until: now.Add(holdFirst),
		Reason: "it is being evicted: the node is short of what it uses"})
}

// Evicted keeps an evicted pod out, longer each time, and what its owner makes in its place.
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
	if len(h.held) > mostHeld {
		clear(h.held)
	}
	was := heldOff{times: times + 1, last: now, signal: signal, owner: owner}
	until := now.Add(min(holdFirst<<min(times, 10), holdMax))
	h.held[uid] = was
	h.shared.Set(now, uid, nri.Hold{Until: until, Reason: message})
	if key != "" {
		h.held[key] = was
		h.shared.Set(now, key, nri.Hold{Until: until, Reason: owner.reason(message)})
	}
}

// times is how often one was evicted lately.
func (h *HoldOffs) times(now time.Time, key string) int {
	if was := h.held[key]; key != "" && now.Sub(was.last) <= forget {
		return was.times
	}
	return 0
}

// Until is how long a pod is kept out; zero: it is not.
func (h *HoldOffs) Until(uid string) time.Time { return h.shared.All()[uid].Until }

// Held is how many pods are kept out, by UID.
func (h *HoldOffs) Held(now time.Time) (n int) {
	for key, hold := range h.shared.All() {
		if hold.Until.After(now) && !ofOwner(key) {
			n++
		}
	}
	return n
}

// Dying keeps a pod out while its eviction is under way, and what its owner makes in its place. It
// is called once a second.
func (h *HoldOffs) Dying(now time.Time, uid, message string) (changed bool) {
	owner := h.held[uid].owner
	for key, reason := range map[string]string{uid: message, owner.key(): owner.reason(message)} {
		if key == "" || h.shared.All()[key].Until.Sub(now) >= holdOnFor {
			continue
		}
		h.shared.Set(now, key, nri.Hold{Until: now.Add(holdFirst), Reason: reason})
		changed = true
	}
	return changed
}

// Lasting keeps those out whose pressure lasts, by the thresholds that are met, and those that a
// kubelet is to tear down. It is called once a second.
func (h *HoldOffs) Lasting(now time.Time, met []eviction.Met) (changed bool) {
	for uid, hold := range h.shared.All() {
		if !now.Before(hold.Until) || hold.Until.Sub(now) >= holdOnFor {
			continue
		}
		was := h.held[uid]
		short := slices.ContainsFunc(met,
			func(m eviction.Met) bool { return m.Threshold.Signal == was.signal })
		if !short && (h.marked == nil || now.Sub(was.last) >= tearDown || !h.marked(uid)) {
			continue
		}
		hold.Until = now.Add(holdOnFor)
		h.shared.Set(now, uid, hold)
		changed = true
	}
	return changed
}

// Save are the hold-offs that are not over.
func (h *HoldOffs) Save(now time.Time) (out []records.HoldOff) {
	for key, hold := range h.shared.All() {
		if !now.Before(hold.Until) {
			continue
		}
		was := h.held[key]
		saved := records.HoldOff{
			UID: key, Until: hold.Until, Reason: hold.Reason, Times: max(was.times, 1), Signal: was.signal,
			Owner: records.Owner(was.owner),
		}
		if ofOwner(key) {
			saved.UID = ""
		}
		out = append(out, saved)
	}
	return out
}

// Resume keeps those out who were kept out by the process before this one.
func (h *HoldOffs) Resume(now time.Time, saved []records.HoldOff) {
	for _, s := range saved {
		owner := Owner(s.Owner)
		if key := cmp.Or(s.UID, owner.key()); key != "" {
			h.shared.Set(now, key, nri.Hold{Until: s.Until, Reason: s.Reason})
			h.held[key] = heldOff{times: s.Times, last: now, signal: s.Signal, owner: owner}
		}
	}
}

// For says what a resumed hold-off is for: the state of an older agent has no signal in it.
func (h *HoldOffs) For(uid string, signal stats.Signal) {
	was := h.held[uid]
	was.signal = signal
	h.held[uid] = was
}
