package gate

import (
	"time"

	"jettison/cri/nri"
	"jettison/eviction"
	"jettison/internal/records"
	"jettison/stats"
)

// How long a pod that was evicted is kept out when it comes back under its UID: doubled each time, and as long as the pressure lasts.
const (
	holdFirst = 10 * time.Second
	holdMax   = 5 * time.Minute
	holdOnFor = 5 * time.Second // beyond each look at which its pressure is still there
	forget    = time.Hour       // after its last eviction a pod starts at holdFirst again
	mostHeld  = 1000            // pods that are remembered
)

// HoldOffs are the pods that are kept out. They belong to the loop; the runtime's plugin reads what they share.
type HoldOffs struct {
	shared nri.HoldOffs
	held   map[string]heldOff // who was kept out, by UID
}

// heldOff is what is remembered of a pod that was kept out.
type heldOff struct {
	times  int
	last   time.Time
	signal stats.Signal // that it was evicted for
}

// AtOnce keeps a victim out from before it is stopped, until Evicted says how long. It does not allocate.
func (h *HoldOffs) AtOnce(now time.Time, uid string) {
	h.shared.SetAtOnce(uid, nri.Hold{Until: now.Add(holdFirst), Reason: "it is being evicted: the node is short of what it uses"})
}

// Evicted keeps an evicted pod out, longer each time.
func (h *HoldOffs) Evicted(now time.Time, uid string, signal stats.Signal, message string) {
	times := h.held[uid].times
	if now.Sub(h.held[uid].last) > forget {
		times = 0
	}
	if len(h.held) > mostHeld {
		clear(h.held)
	}
	h.held[uid] = heldOff{times: times + 1, last: now, signal: signal}
	h.shared.Set(now, uid, nri.Hold{Until: now.Add(min(holdFirst<<min(times, 10), holdMax)), Reason: message})
}

// Until is how long a pod is kept out; zero: it is not.
func (h *HoldOffs) Until(uid string) time.Time { return h.shared.All()[uid].Until }

// Held is how many pods are kept out.
func (h *HoldOffs) Held(now time.Time) (n int) {
	for _, hold := range h.shared.All() {
		if hold.Until.After(now) {
			n++
		}
	}
	return n
}

// Dying keeps a pod out while its eviction is under way. It is called once a second.
func (h *HoldOffs) Dying(now time.Time, uid, message string) (changed bool) {
	if h.shared.All()[uid].Until.Sub(now) >= holdOnFor {
		return false
	}
	h.shared.Set(now, uid, nri.Hold{Until: now.Add(holdFirst), Reason: message})
	return true
}

// Lasting keeps those out whose pressure lasts, by the thresholds that are met. It is called once a second.
func (h *HoldOffs) Lasting(now time.Time, met []eviction.Met) (changed bool) {
	for uid, hold := range h.shared.All() {
		if !now.Before(hold.Until) || hold.Until.Sub(now) >= holdOnFor {
			continue
		}
		for _, m := range met {
			if m.Threshold.Signal == h.held[uid].signal {
				hold.Until = now.Add(holdOnFor)
				h.shared.Set(now, uid, hold)
				changed = true
				break
			}
		}
	}
	return changed
}

// Save are the hold-offs that are not over.
func (h *HoldOffs) Save(now time.Time) (out []records.HoldOff) {
	for uid, hold := range h.shared.All() {
		if now.Before(hold.Until) {
			was := h.held[uid]
			out = append(out, records.HoldOff{UID: uid, Until: hold.Until, Reason: hold.Reason, Times: max(was.times, 1), Signal: was.signal})
		}
	}
	return out
}

// Resume keeps those out who were kept out by the process before this one.
func (h *HoldOffs) Resume(now time.Time, saved []records.HoldOff) {
	for _, s := range saved {
		h.shared.Set(now, s.UID, nri.Hold{Until: s.Until, Reason: s.Reason})
		h.held[s.UID] = heldOff{times: s.Times, last: now, signal: s.Signal}
	}
}

// For says what a resumed hold-off is for: the state of an older agent has no signal in it.
func (h *HoldOffs) For(uid string, signal stats.Signal) {
	was := h.held[uid]
	was.signal = signal
	h.held[uid] = was
}
