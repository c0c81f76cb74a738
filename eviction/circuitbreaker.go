package eviction

import (
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// The breaker stops evictions that do not help: something other than pods uses up the resource, and
// each further victim would die without effect.

// breakerLimit is the number of evictions in a row for one threshold that may fail to lower the
// pressure before the breaker opens. An eviction that failed because other pods grew does not
// count: the next pod's end may help.
const breakerLimit = 3

// Growth of a cgroup.
type Growth struct {
	Cgroup string // path below the root
	Bytes  int64  // growth of its memory
}

// An eviction that the open breaker allows is a trial. After a futile trial the next one waits for
// trialDelayMin, and the delay doubles with each further trial up to trialDelayMax. A new pod that
// causes the shortage is therefore evicted within five minutes, and a workload that is recreated
// forever loses one pod in five minutes.
const (
	trialDelayMin = 30 * time.Second
	trialDelayMax = 5 * time.Minute
)

// breaker belongs to one threshold: futile evictions for a soft threshold show nothing about the
// hard one.
type breaker struct {
	futile int // evictions in a row that did not lower the pressure
	// usageAtOpen is the usage of each eligible pod when the breaker opened; nil if no look was made
	// since. Evicting a pod with the same usage would not help. Upper bounds are not stored, because
	// their page cache would hide a leak.
	usageAtOpen map[string]uint64
	// usageAtOpen misses pods, because only an upper bound of their usage was read
	hasBounds bool
	// futileReturns holds the returns of futile victims, by their workload: a pod that replaces such
	// a victim is not new.
	futileReturns map[string]uint64
	trials        int       // evictions that the open breaker allowed
	nextTrial     time.Time // earliest next trial; zero: no trial was futile yet
	// atOpen holds the usage of all pods when the breaker opened, and the amount left. For a disk it
	// holds only the latter.
	atOpen podTotals
}

// breakerKey identifies a threshold.
type breakerKey struct {
	signal stats.Signal
	hard   bool
}

func (w *watched) key() breakerKey { return breakerKey{w.Signal, w.Hard()} }

// countFutile counts an eviction that did not help.
func (b *breaker) countFutile(now time.Time, e *Eviction) {
	if b.futile++; b.futile >= breakerLimit && b.trials > 0 {
		b.nextTrial = now.Add(trialDelay(b.trials))
	}
	if workload := workloadOf(e.Pod.PodRef.Namespace, e.Pod.PodRef.Name); workload != "" {
		if b.futileReturns == nil {
			b.futileReturns = map[string]uint64{}
		}
		if _, stored := b.futileReturns[workload]; stored || len(b.futileReturns) < maxRemembered {
			b.futileReturns[workload] = max(b.futileReturns[workload], e.Returns)
		}
	}
}

// trialDelay returns the delay before the next trial.
func trialDelay(trials int) time.Duration {
	delay := trialDelayMin
	for range min(trials, maxTrials) - 1 {
		delay = min(2*delay, trialDelayMax)
	}
	return delay
}

// workloadOf returns the namespace and name of a pod's workload: the pod's name without its
// generated suffix, five characters (k8s.io/apimachinery/pkg/util/rand) or a number. It returns ""
// if the name is unknown.
func workloadOf(namespace, name string) string {
	const randomLetters = "bcdfghjklmnpqrstvwxz2456789"
	if name == "" {
		return ""
	}
	if at := strings.LastIndexByte(name, '-'); at > 0 {
		suffix := name[at+1:]
		number := suffix != "" && strings.Trim(suffix, "0123456789") == ""
		if number || len(suffix) == 5 && strings.Trim(suffix, randomLetters) == "" {
			name = name[:at]
		}
	}
	return namespace + "/" + name
}

// moveToFront makes a candidate further down the ranking the victim, for a reason.
func moveToFront(ranked []Ranked, at int, reason string) {
	c := ranked[at]
	copy(ranked[1:at+1], ranked[:at])
	ranked[0], ranked[0].DecidedBy, ranked[1].DecidedBy = c, "", reason
}

// recordOpen stores a signal's state when the breaker opens.
func (b *breaker) recordOpen(w *watched) {
	switch {
	case !b.atOpen.at.IsZero():
	case w.info.kind.disk():
		b.atOpen = podTotals{at: w.observed.Time, left: w.observed.Value}
	default:
		b.atOpen = w.podTotals
	}
}

// newOrGrown reports whether a pod started or grew since the breaker opened. A suspected pod may
// have grown: its measurement does not show that it has not.
func (b *breaker) newOrGrown(w *watched, c *Candidate) bool {
	usage, stored := b.usageAtOpen[c.Pod.PodRef.UID]
	return !stored || c.Keys.suspicion.serious() || w.grewMuch(usage, c.Keys.Usage)
}

// firstSuspect returns the index of the first suspected pod that replaces no futile victim; -1: none.
// A pod that is set aside does not come before another.
func (b *breaker) firstSuspect(w *watched, ranked []Ranked) int {
	return slices.IndexFunc(ranked, func(r Ranked) bool {
		return r.Keys.suspicion.serious() && !b.replacesFutile(w, &r.Candidate) &&
			(!r.Keys.SetAside || ranked[0].Keys.SetAside)
	})
}

// replacesFutile reports whether a pod replaces a futile victim and would return no more than that.
func (b *breaker) replacesFutile(w *watched, c *Candidate) bool {
	name := c.Pod.PodRef.Name
	if name == "" && c.Object != nil {
		name = c.Object.Ref.Name
	}
	returned, stored := b.futileReturns[workloadOf(c.namespace(), name)]
	return stored && !w.grewMuch(returned, expected(c, w).V)
}

// grew reports whether a pod behind the first one grew since the breaker opened. Its growth alone
// must make a difference. A pod that is set aside does not count. A pod within its request counts
// only if the first pod is within its request too.
func (b *breaker) grew(w *watched, c, first *Candidate) bool {
	spared := c.Keys.SetAside || c.Keys.standing() == withinRequest &&
		first.Keys.standing() != withinRequest
	return !spared && w.grewMuch(b.usageAtOpen[c.Pod.PodRef.UID], c.Keys.Usage) &&
		!b.replacesFutile(w, c)
}

// podsGrew reports whether eligible pods grew by much since the breaker opened, and by at least
// half of the signal's loss. It returns false if that is unknown.
func (b *breaker) podsGrew(now time.Time, w *watched) bool {
	before, after := b.atOpen, w.podTotals
	if w.info.kind.disk() || before.at.IsZero() || after.at.IsZero() ||
		now.Sub(after.at) > stats.MaxAge {
		return false
	}
	grew := int64(after.used) - int64(before.used)
	if !before.splitAt.IsZero() && after.splitAt.After(before.splitAt) {
		grew -= before.protectedGrowth(&after.split, grew)
	}
	return w.growthExplains(grew, int64(before.left)-int64(after.left))
}

// podsGrewOnDisk reports whether eligible pods grew on a disk by much since the breaker opened, and
// by at least half of the disk's loss. It uses the measured usage of each pod.
func (b *breaker) podsGrewOnDisk(w *watched, ranked []Ranked) bool {
	if !w.info.kind.disk() || b.atOpen.at.IsZero() {
		return false
	}
	grew := uint64(0)
	for i := range ranked {
		c := &ranked[i].Candidate
		grew = stats.SaturatingAdd(grew, c.Keys.Usage-min(c.Keys.Usage, b.usageAtOpen[c.Pod.PodRef.UID]))
	}
	return w.growthExplains(int64(min(grew, implausible)),
		int64(b.atOpen.left)-int64(w.observed.Value))
}

// growthExplains reports whether pods grew by much, and by at least half of the signal's loss.
func (w *watched) growthExplains(grew, fell int64) bool {
	return grew > 0 && w.grewMuch(0, uint64(grew)) && grew >= fell/2
}

// grewMuch reports whether has exceeds had by so much that evicting the pod may help.
func (w *watched) grewMuch(had, has uint64) bool {
	enough := had/dip + 1
	if w.Amount() {
		enough = max(enough, w.limit/dip)
	}
	return has >= stats.SaturatingAdd(had, enough)
}

// recordUsage stores the usage of the eligible pods when the breaker opens. The next look stores
// the pods with only an upper bound, because PodToRead requests a full read of them. A pod counts
// as new if that read fails.
func (b *breaker) recordUsage(ranked []Ranked) {
	recorded := b.usageAtOpen != nil
	if !recorded {
		b.usageAtOpen = make(map[string]uint64, len(ranked))
	}
	b.hasBounds = false
	for i := range ranked[:min(len(ranked), maxRemembered)] {
		c := &ranked[i].Candidate
		uid := c.Pod.PodRef.UID
		switch _, stored := b.usageAtOpen[uid]; {
		case stored:
		case c.upperBoundOnly():
			b.hasBounds = !recorded
		case len(b.usageAtOpen) < maxRemembered:
			b.usageAtOpen[uid] = c.Keys.Usage
		}
	}
}

// upperBoundOnly reports whether only an upper bound of the pod's usage was read.
func (c *Candidate) upperBoundOnly() bool {
	return c.Pod.Memory.Quick && releaseKind(c.Keys.kind) == kindMemory
}
