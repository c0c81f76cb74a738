package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// Rules that are true on every timeline, by the real world and not by the agent's view.
const (
	ruleProtected = "protected" // no protected pod is evicted, or ranked
	rulePhase     = "phase"     // no living pod is missing in a ranking because of its object
	ruleImmune    = "immune"    // no pod is called protected that is not
	ruleVolume    = "volume"    // no pod dies for memory that a dead victim's volumes still hold
	ruleExplained = "explained" // nor for what terminating victims hold
	// a hard threshold that is met gets a victim in time, if a pod is eligible
	ruleUnserved = "unserved"
	ruleUnknown  = "unknown" // whatever is unknown, if pods must explain a disk's shortage
	ruleWriter   = "writer"  // and the pod that fills the disk is evicted before it is full
	ruleBlocked  = "blocked" // whatever is done for other signals
	ruleBlind    = "blind"   // however long its own victim takes to die
	ruleStopped  = "stopped" // also while a disk's victim is being stopped
	ruleBreaker  = "breaker" // the breaker does not open because of leaking pods
	ruleSoft     = "soft"    // nor for hard thresholds because of futile soft evictions
	ruleArmed    = "armed"   // nor for long if the first pod is new or has grown
	// no pod within its request is evicted for memory before one over its own
	ruleRequest     = "request"
	ruleNeedless    = "needless"    // no pod dies without a shortage
	ruleTwice       = "twice"       // no pod is killed again while it dies
	ruleOne         = "one"         // one victim per step
	ruleOutcome     = "outcome"     // every eviction has one outcome, and ends
	ruleOutlook     = "outlook"     // an Outlook names the victim that the threshold then evicts
	ruleCalm        = "calm"        // nothing is left when the node is calm
	ruleOrder       = "order"       // the order of pods in the input has no effect
	ruleDeterminism = "determinism" // nor has anything else but the input
)

// Limits of the rules.
const (
	// servedLimit bounds the time in which a hard threshold is met, by more than earlier victims
	// hold, without an eviction. A dead victim is waited for two seconds, and a calm signal is looked
	// at every second.
	servedLimit = 4 * time.Second
	// diskServed is the same for a disk, where garbage is collected and pods are measured first.
	diskServed = time.Minute
	// unknownServed is the same if pods must explain the shortage: garbage is collected, pods are
	// measured, and one is evicted after the delay.
	unknownServed = time.Minute + freshLimit + 15*time.Second
	// armedMore is how much the first pod of the ranking may grow while the breaker is open.
	armedMore = 512
	// softServed bounds the time in which a soft threshold is met beyond its grace period without an
	// eviction: the time that a victim may take to stop, to die, and to return shared memory.
	softServed = 5*time.Second + stopBound + DieLimit + sharedLimit + servedLimit
	// tolerance is the change allowed between a look and its result.
	tolerance = 96
)

// rules watches a timeline.
type rules struct {
	s                *shell
	broken, reason   string
	grows            bool      // something grows outside of the eligible pods
	victims          []*victim // the last eviction of each pod
	first            []*victim // the first of each life of a pod: a repeated one costs no further pod
	made             []*roomOf
	begin            time.Duration                           // of the last eviction
	since            map[bool]map[stats.Signal]time.Duration // by whether the threshold is hard
	hard             map[kind]int                            // evictions for hard thresholds
	outcomesReported map[*Life]int
	count            int                  // number of evictions
	tmpfs            float64              // the node's at the last look
	stopped          map[*realPod]float64 // what pods had when the breaker opened
	shaken           time.Duration        // time at which the clock was set or the agent restarted
}

// victim is an eviction.
type victim struct {
	*realPod
	l       *Life
	its     int
	at      time.Duration
	hard    bool
	signal  stats.Signal
	level   map[string]float64 // available amounts: the highest since the kill
	held    map[string]float64 // what it had
	left    float64            // available amount of the disk at the eviction
	since   time.Time          // since when the threshold is met
	forDisk bool               // it was evicted for a disk
	seen    float64            // available amount by the observation that asked for the eviction
	late    bool               // it did not die in time
	fallen  float64            // fall of the node's shared memory since
}

func newRules(s *shell, tl *timeline) *rules {
	r := &rules{s: s, since: noSince(), hard: map[kind]int{}, outcomesReported: map[*Life]int{}, begin: -time.Hour, shaken: -time.Hour}
	for _, e := range tl.Events {
		r.grows = r.grows || (e.What == "outside" || e.What == "tasks" || e.What == "disk") && e.By > 0
	}
	for _, p := range s.pods {
		r.grows = r.grows || p.protected() && p.LeakAnon+p.LeakVol+p.LeakSwap+p.LeakTasks > 0
	}
	return r
}

func noSince() map[bool]map[stats.Signal]time.Duration {
	return map[bool]map[stats.Signal]time.Duration{true: {}, false: {}}
}

func (r *rules) fail(rule, format string, args ...any) {
	if r.broken == "" {
		r.broken, r.reason = rule, fmt.Sprintf("at %v: ", r.s.t)+fmt.Sprintf(format, args...)
	}
}

// whatOf names the resource of a signal.
var whatOf = map[stats.Signal]string{
	stats.SignalMemoryAvailable: "memory", stats.SignalAllocatableMemoryAvailable: "allocatable", stats.SignalSwapAvailable: "swap",
	stats.SignalPIDAvailable: "tasks", stats.SignalNodeFsAvailable: "disk", stats.SignalContainerFsAvailable: "disk",
}

// needs returns what must be available for a threshold not to be met, and for an eviction for it to
// be over.
func (r *rules) needs(t *Threshold) (limit, enough float64) {
	unit, capacity := float64(mib), map[string]int{
		"memory": r.s.Memory, "allocatable": r.s.Allocatable, "swap": r.s.Swap, "tasks": r.s.Tasks, "disk": r.s.Disk,
	}[whatOf[t.Signal]]
	if t.Signal == stats.SignalPIDAvailable {
		unit = 1
	}
	all := uint64(float64(capacity) * unit)
	limit = float64(t.Value.Of(all)) / unit
	if enough = limit; t.MinReclaim != nil {
		enough += float64(t.MinReclaim.Of(all)) / unit
	}
	return limit, enough
}

// protected reports whether a pod must never be evicted, by certain facts: the runtime's report,
// and an object that is the pod's.
func (p *realPod) protected() bool {
	object := p.Object && !p.WrongName
	known := object && !p.NoPriority
	switch {
	case p.Self, p.Static && !p.Strange, p.Mirror && !p.Strange, known && p.Priority >= systemCriticalPriority:
		return true
	case !known && p.NodeCritical:
		return true
	case !known && p.NS == "kube-system":
		return !p.Strange || object
	}
	return false
}

// look checks before each look: a shortage that nothing explains gets a victim in time.
func (r *rules) look(ready *Ready) {
	r.follow()
	r.rooms()
	for i := range r.s.m.watch.all {
		w := &r.s.m.watch.all[i]
		if w.info.kind.pressure() || w.info.fs == containerFs {
			continue
		}
		if h := r.s.m.evictions.pendingReturns(r.s.now(), w, &r.s.m.watch); !w.info.kind.disk() && w.Hard() && h.last != nil && h.last.e.Disk() && h.last.Phase() == Stopping {
			r.fail(ruleStopped, "%s waits for %s, which is being stopped for a disk", w.Signal, h.last.e.Pod.PodRef.UID)
		}
		since := r.since[w.Hard()]
		if !w.observed.OK || !r.unexplained(w) {
			delete(since, w.Signal)
			continue
		}
		if _, has := since[w.Signal]; !has {
			since[w.Signal] = r.s.t
		}
		limit := servedLimit
		switch {
		case w.info.kind.disk() && r.s.Explain:
			limit = unknownServed
		case w.info.kind.disk():
			limit = diskServed
		case !w.Hard():
			if limit = w.Grace + softServed; r.s.Garbage > 0 {
				limit += 20 * time.Second // at most, for a disk's hard threshold
			}
		case !w.info.kind.memoryView():
			limit += 2 * fullRetry // the interval between full looks
		}
		if w.info.kind.disk() {
			limit += min(r.s.Garbage, reliefLimit)
		}
		if waits := r.s.t - max(since[w.Signal], r.begin); waits > limit && !r.breakerJustified(ready) {
			r.fail(r.lateness(w), "%s is short for %v, %.0f of it available, without an eviction: %s", w.Signal, waits, r.s.free(whatOf[w.Signal]), r.s.last)
		}
	}
}

// lateness returns why no pod is evicted in time.
func (r *rules) lateness(w *watched) string {
	rule := ruleUnserved
	if w.info.kind.disk() && r.s.Explain {
		rule = ruleUnknown
	}
	for _, v := range r.victims {
		switch {
		case v.signal == w.Signal && v.life == v.its && (v.alive || v.ended >= r.s.t-time.Second):
			return ruleBlind
		case v.signal != w.Signal && r.s.t-v.at < DieLimit+sharedLimit:
			rule = ruleBlocked
		}
	}
	return rule
}

// breakerJustified reports whether the breaker has reason to be open.
func (r *rules) breakerJustified(ready *Ready) bool { return ready.BreakerOpen && r.grows }

// unexplained reports whether the threshold is met, by more than earlier victims hold, and a pod is
// eligible.
func (r *rules) unexplained(w *watched) bool {
	what := whatOf[w.Signal]
	left, slack := r.s.free(what), r.slack(what)
	limit, _ := r.needs(&w.Threshold)
	if left >= limit || left+r.expectedFrom(what, w.Hard(), -time.Hour, false)+slack >= limit || what == "disk" && r.s.Kubelet {
		return false
	}
	for _, v := range r.victims {
		switch {
		case v.life != v.its || !v.alive:
		case !w.Hard() && !v.hard && !v.killed:
			return false // it has its grace period
		case v.signal == w.Signal && r.s.t < r.dies(v)+time.Second && v.hard && (!v.killed || v.unmeasured(what) || v.usage(what) > v.held[what]/2):
			return false // nothing shows that it will not die
		}
	}
	if what == "disk" && slices.ContainsFunc(r.victims, func(v *victim) bool { return v.l.e.Disk() }) {
		return false // the disk gains later
	}
	may, all, known := false, left, true
	for _, p := range r.s.pods {
		if p.there && p.alive && !p.killed && !p.protected() && r.s.m.Life(p.uid) == nil {
			if r.s.unpinned[p] < p.Unpinned {
				return false // it may be tried first
			}
			may = may || !r.s.now().Before(r.s.m.evictions.history.aside[p.uid].until)
			all, known = all+p.disk, known && !p.Cut && !p.NoDisk && p.Found == 0
		}
	}
	if what == "disk" && r.s.Explain && known && all < limit+tolerance {
		return false // the end of all pods would not end the shortage
	}
	return may
}

// dies returns until when a victim may still die. A new process waits for one that was killed only
// for the rest of that time, at least settleLimit.
func (r *rules) dies(v *victim) time.Duration {
	if v.killed && v.at < r.shaken {
		return max(v.at+DieLimit, r.shaken+settleLimit)
	}
	return max(v.at, r.shaken) + DieLimit
}

// onlyEvicting reports whether only its eviction keeps a pod from another one.
func (r *rules) onlyEvicting(l *Life) bool {
	p := r.s.podOf(l.e.Pod.PodRef.UID)
	return p != nil && p.there && p.alive && !p.Unmeasured && !r.s.now().Before(r.s.m.evictions.history.aside[p.uid].until)
}

func (r *rules) slack(what string) float64 {
	if what == "tasks" {
		return 20
	}
	return tolerance
}

// expectedFrom returns the usage of victims since then, as long as its return may be expected.
// known restricts it to what the agent can know.
func (r *rules) expectedFrom(what string, hard bool, since time.Duration, known bool) (owed float64) {
	for _, v := range r.victims {
		switch {
		case v.at < since || !r.awaited(v, what, hard) && (known || what != "memory" && what != "allocatable" || r.doubt(v) == 0):
		case known:
			owed += v.expected(what)
		default:
			owed += max(v.usage(what), r.doubt(v))
		}
	}
	return owed
}

func (r *rules) awaited(v *victim, what string, hard bool) bool {
	disk := what == "disk"
	t := r.s.t
	switch {
	case v.life != v.its, disk && !v.l.e.Disk(), v.l.e.Local():
		return false
	// it counts once it was killed for another shortage, if its usage is known
	case !disk && v.l.e.Disk():
		return v.alive && v.killed && !v.l.Killed().Time.IsZero() && !v.Unmeasured && t-v.at < DieLimit
	case v.alive && !v.hard:
		return !hard && t-v.at < DieLimit
	case v.alive && v.killed:
		return t-v.at < DieLimit
	case v.alive:
		return t-v.at < DieLimit // the runtime kills it
	// it was set aside, and its later death is reported only after the clean-up
	case disk && v.l.undying:
		return false
	case disk: // a hard threshold does not wait for a soft one's victim
		return (v.hard || !hard) && t-v.ended < cleanLimit
	case v.late:
		return false // others got their turn
	}
	return t-v.ended < sharedLimit && v.vol > leastShared/mib
}

// expected returns what a victim is still expected to return. Only the node's value shows whether
// shared memory was freed: if that has fallen by as much as the victim had, it counts as the
// victim's. A look at tasks does not read a pod's.
func (v *victim) expected(what string) float64 {
	left, had := v.usage(what), v.held["shared"]
	if what == "disk" { // as measured, though it wrote on
		return min(left, float64(v.l.e.Returns)/mib)
	}
	if what != "tasks" && v.Unmeasured || v.unmeasured(what) {
		return 0
	}
	shared := v.shm + v.vol
	switch {
	case what != "memory" && what != "allocatable":
	case !v.l.e.Pod.Memory.ShmemBytes.OK || v.fallen > had-had/dip-tolerance:
		left -= shared
	default:
		left -= min(shared, v.fallen)
	}
	return left
}

// doubt returns how much of a dead victim's shared memory may be pending by the node's value: the
// fall may have been that of others, which still hold theirs.
func (r *rules) doubt(v *victim) float64 {
	all := v.held["shared"]
	if v.alive || all <= leastShared/mib || r.s.t-v.ended >= sharedLimit {
		return 0
	}
	for _, o := range r.victims {
		if o != v && o.life == o.its {
			all += o.shm + o.vol
		}
	}
	if v.fallen >= all-all/dip {
		return 0
	}
	return min(v.held["shared"], all-v.fallen)
}

// follow records how the node's shared memory falls and rises.
func (r *rules) follow() {
	now := r.s.shared()
	for _, v := range r.victims {
		v.fallen += max(0, r.tmpfs-now)
		for what := range v.level {
			if what != "disk" && (v.killed || !v.alive || v.life != v.its) {
				v.level[what] = max(v.level[what], r.s.free(what))
			}
		}
	}
	r.tmpfs = now
}

// decision checks what every step decides.
func (r *rules) decision(d *Decision, in Input) {
	evictions := 0
	for i := range d.Evictions {
		if d.Evictions[i].Disruption {
			evictions++
		}
	}
	if evictions > 1 {
		r.fail(ruleOne, "%d evictions in a step, want at most one", evictions)
	}
	if t := &d.Signal.Threshold; d.BreakerOpen && strings.Contains(d.Reason, "circuit breaker open") {
		switch k := signals[t.Signal].kind; {
		case k.disk(): // growth there is unknown
		case !r.grows:
			r.fail(ruleBreaker, "breaker open, but nothing grows outside of eligible pods: %s", d.Reason)
		case t.Hard() && r.hard[k] < breakerLimit:
			r.fail(ruleSoft, "breaker open after %d hard evictions: %s", r.hard[k], d.Reason)
		default:
			r.armed(d)
		}
	} else if d.Reason != "" {
		r.stopped = nil
	}
	if len(d.Ranking)+len(d.Protected) == 0 && d.Reason != "no eligible pod" {
		return
	}
	for _, p := range r.s.pods {
		if !p.there || !p.alive {
			continue
		}
		is := func(c *Candidate) bool { return c.Pod.PodRef.UID == p.uid }
		ranked := slices.ContainsFunc(d.Ranking, func(c Ranked) bool { return is(&c.Candidate) })
		spared := slices.ContainsFunc(d.Protected, func(c Candidate) bool { return is(&c) })
		switch {
		case p.protected() && ranked:
			r.fail(ruleProtected, "protected pod %s is ranked", p.uid)
		case !p.protected() && spared:
			r.fail(ruleImmune, "pod %s is reported as protected, but is not", p.uid)
		case !p.protected() && !ranked && r.s.m.evictions.terminating(p.uid) == nil:
			r.fail(rulePhase, "live pod %s is missing in the ranking", p.uid)
		}
	}
}

// outlook compares an answer with the decision of the same look.
func (r *rules) outlook(d *Decision, all []Outlook) {
	if len(d.Evictions) != 1 || !d.Evictions[0].Disruption {
		return
	}
	for _, o := range all {
		if o.Threshold.Signal != d.Signal.Threshold.Signal || o.Threshold.Grace != d.Signal.Threshold.Grace {
			continue
		}
		if len(o.Ranking) == 0 || o.NoEvictionReason != "" || o.Ranking[0].Pod.PodRef.UID != d.Evictions[0].Pod.PodRef.UID || !o.Met {
			r.fail(ruleOutlook, "%s is evicted, but Outlook has %d candidates, withheld: %q", d.Evictions[0].Pod.PodRef.UID, len(o.Ranking), o.NoEvictionReason)
		}
		return
	}
	r.fail(ruleOutlook, "Outlook has no entry for %s", d.Signal.Threshold)
}

// armed checks while the breaker is open: the first pod of the ranking is the same as at its
// opening, and has not grown.
func (r *rules) armed(d *Decision) {
	if len(d.Ranking) == 0 {
		return
	}
	if r.stopped == nil {
		r.stopped = map[*realPod]float64{}
		for _, p := range r.s.pods {
			if p.there {
				r.stopped[p] = p.memory()
			}
		}
	}
	p := r.s.podOf(d.Ranking[0].Pod.PodRef.UID)
	before, was := r.stopped[p]
	for _, v := range r.victims { // a pod that replaces a futile victim is not new
		if v.realPod == p {
			before, was = max(before, v.held["memory"]), true
		}
	}
	t := &d.Signal.Threshold
	switch wait := r.s.m.breakers.byThreshold[breakerKey{t.Signal, t.Hard()}].nextTrial.Sub(r.s.now()); {
	case wait > 0 && wait <= trialDelayMax: // the last new pod did not help
	case whatOf[d.Signal.Threshold.Signal] != "memory" || r.s.outside["outside"].until > r.s.t || !p.there || p.Unmeasured:
	case !was:
		r.fail(ruleArmed, "breaker open, but %s is new and first: %s", p.uid, d.Reason)
	case p.memory() > before+armedMore:
		r.fail(ruleArmed, "breaker open, but %s is first and grew from %.0f to %.0f: %s", p.uid, before, p.memory(), d.Reason)
	}
}

// begins checks right before an eviction.
func (r *rules) begins(p *realPod, e *Eviction, met *Met, in Input) {
	if p.protected() {
		r.fail(ruleProtected, "protected pod %s is evicted", p.uid)
	}
	for _, v := range r.victims {
		if v.realPod == p && v.life == v.its && v.hard && v.alive && r.s.t-v.at < DieLimit && v.at > r.shaken && v.life == p.life {
			r.fail(ruleTwice, "%s is evicted again after %v, while it terminates", p.uid, r.s.t-v.at)
		}
	}
	if e.Local() {
		return
	}
	what := whatOf[e.Signal]
	_, enough := r.needs(&met.Threshold)
	left, slack := r.s.free(what), r.slack(what)
	if left > enough+slack && what != "disk" {
		r.fail(ruleNeedless, "%s is evicted for %s with %.0f available, which is enough", p.uid, e.Signal, left)
	}
	owed := r.expectedFrom(what, e.hard, r.shaken, true) // after a restart less is known
	if limit, _ := r.needs(&met.Threshold); owed > 0 && left <= enough+slack && left+owed > enough+slack && !r.emergency(what, left, limit, e.hard) {
		rule := ruleExplained
		if slices.ContainsFunc(r.victims, func(v *victim) bool { return v.life == v.its && !v.alive && v.vol > 0 }) {
			rule = ruleVolume
		}
		r.fail(rule, "%s is evicted for %s: %.0f available, %.0f needed, earlier victims hold %.0f", p.uid, e.Signal, left, enough, owed)
	}
	for _, w := range r.s.m.watch.all {
		for _, l := range r.s.m.evictions.lives {
			if w.Signal == e.Signal && w.Hard() && e.hard && !e.CutsGracePeriod && l.e.Pod.PodRef.UID != p.uid && l.spared(&w) && l.terminating() && l.endsShortage(&w) && r.onlyEvicting(l) {
				r.fail(ruleExplained, "%s is evicted for %s, but %s, which is being stopped, ends the shortage", p.uid, e.Signal, l.e.Pod.PodRef.UID)
			}
		}
	}
	if what == "disk" {
		r.writer(p, e, left, enough+slack)
	}
	if what == "memory" || what == "allocatable" {
		r.innocent(p, e)
	}
}

// emergency reports whether less than half is left of the amount at an earlier kill or of the
// limit, or next to nothing for as long as a kill should take. Nothing is waited for then.
func (r *rules) emergency(what string, left, limit float64, hard bool) bool {
	return slices.ContainsFunc(r.victims, func(v *victim) bool {
		since := r.s.t - v.at
		half := since < DieLimit+sharedLimit && left < min(v.level[what], limit)/2+1
		return half || r.awaited(v, what, hard) && since >= settleLimit && left < limit/dip+1
	})
}

// innocent checks that no pod within its request is evicted while one over its own is eligible.
func (r *rules) innocent(p *realPod, e *Eviction) {
	if e.CutsGracePeriod || p.Unmeasured || p.memory() > float64(p.Request) {
		return
	}
	for _, o := range r.s.pods {
		if o == p || !o.there || !o.alive || o.killed || o.Unmeasured || o.protected() || o.memory() < float64(o.Request)+tolerance {
			continue
		}
		if aside := r.s.now().Before(r.s.m.evictions.history.aside[o.uid].until); !aside && r.s.m.Life(o.uid) == nil {
			r.fail(ruleRequest, "%s is evicted with %.0f of its request of %d, but %s uses %.0f of %d", p.uid, p.memory(), p.Request, o.uid, o.memory(), o.Request)
		}
	}
}

// begun records an eviction.
func (r *rules) begun(p *realPod, l *Life) {
	v := &victim{realPod: p, l: l, its: p.life, at: r.s.t, hard: l.e.hard, signal: l.e.Signal, level: map[string]float64{}, held: map[string]float64{}}
	for _, what := range whatOf {
		v.level[what], v.held[what] = r.s.free(what), p.usage(what)
	}
	if r.s.t < r.s.blind { // the agent does not know it, and compares with the limit
		v.level["memory"] = float64(r.s.Memory)
	}
	v.held["shared"], v.left, v.since, v.forDisk = p.shm+p.vol, r.s.free("disk"), l.met.Since, l.e.Disk() && !l.e.Local()
	v.seen = float64(l.met.Observed.Value) / mib
	if !slices.ContainsFunc(r.victims, func(o *victim) bool { return o.realPod == p && o.its == p.life }) {
		r.first = append(r.first, v)
	}
	r.victims = slices.DeleteFunc(r.victims, func(o *victim) bool { return o.realPod == p })
	r.victims = append(r.victims, v)
	r.count++
	if r.begin, r.stopped = r.s.t, nil; l.e.hard {
		r.hard[l.e.kind]++
	}
}

// outcome checks a reported outcome.
func (r *rules) outcome(l *Life) {
	for _, v := range r.victims {
		v.late = v.late || v.l == l && l.Outcome() == OutcomeUndying
	}
	if r.outcomesReported[l]++; r.outcomesReported[l] > 2 || r.outcomesReported[l] == 2 && l.Outcome() == OutcomeUndying {
		r.fail(ruleOutcome, "outcome of %s is reported %d times", l.e.Pod.PodRef.UID, r.outcomesReported[l])
	}
}

// resumed starts the wait of a new process.
func (r *rules) resumed() {
	r.since, r.shaken, r.made = noSince(), r.s.t, nil // clients that asked for room ask again
}

// end checks long after the node became calm.
func (r *rules) end() {
	if r.broken != "" || r.s.away {
		return
	}
	for _, l := range r.s.m.Lives() {
		p := r.s.podOf(l.e.Pod.PodRef.UID)
		if !p.Uncleaned && !(p.Hasty && l.Phase() == Over) && !(p.alive && l.undying) {
			r.fail(ruleOutcome, "eviction of %s ends in phase %v, outcome %q", p.uid, l.Phase(), l.Outcome())
		}
	}
	for _, m := range r.made {
		r.fail(ruleRoom, "room of %s is still awaited at the end, outcome %q", m.uid, m.l.Outcome())
	}
	if len(r.s.m.conditions.current) > 0 || r.s.m.breakers.anyOpen() {
		r.fail(ruleCalm, "at the end conditions %v, open breaker %v, want none", r.s.m.conditions.current, r.s.m.breakers.anyOpen())
	}
}
