package eviction

import (
	"fmt"
	"slices"
	"time"

	"jettison/stats"
)

// candidates collects the pods that run on the node: eligible pods, measured for a threshold, and
// protected pods. For a pressure signal it collects only pods that cause the pressure, and returns
// their number.
func (m *Manager) candidates(now time.Time, in Input, w *watched, out *lists) (causes int) {
	s := in.Summary
	out.eligible, out.protected = out.eligible[:0], out.protected[:0]
	seen, unseen := 0, false
	consider := func(pod *stats.PodStats, object *Pod) {
		var cause stats.Opt[uint64]
		if w.info.kind.pressure() {
			if cause = m.causes.partIn(w, pod); !cause.OK {
				return
			}
			causes++
		}
		c := m.config.Policy.candidate(pod, object)
		c.Unseen = unseen
		if c.Protected != "" {
			out.protected = append(out.protected, c)
			return
		}
		if !m.evictions.fillKeys(&c.Keys, now, pod.PodRef.UID, w) {
			return
		}
		m.config.Policy.measure(&c, w, &m.watch.disks, s.Node.Memory.Ordinary(), cause)
		c.Keys.Open = openAbove(&c, s.Node.Memory.Ordinary())
		if w.info.kind == kindMemoryPressure && c.Keys.standing() == withinRequest {
			c.Protected = "within its request: not evicted for pressure"
			out.protected = append(out.protected, c)
			return
		}
		m.evictions.history.fillKeys(&c.Keys, now, pod.PodRef.UID)
		out.eligible = append(out.eligible, c)
	}
	for i := range s.Pods {
		if in.Foreign && in.Pods[s.Pods[i].PodRef.UID] != nil {
			seen++
		}
		object := in.object(&s.Pods[i])
		if !empty(&s.Pods[i], object) {
			consider(&s.Pods[i], object)
		}
	}
	if in.Foreign && seen < len(in.Pods) {
		unseen = true
		in.unseen(consider)
	}
	return causes
}

// choose ranks the pods for one threshold and adds an eviction of the first pod to d, unless a
// reason withholds it. It reports whether it did. The ranking and the reason of the first threshold
// stay in the decision until another threshold has a victim.
func (m *Manager) choose(now time.Time, in Input, d *Decision, w *watched) bool {
	met := *findMet(d.Met, w)
	// the values of the look that ranks the pods, which may follow a reclaim
	met.Observed, met.Limit = w.observed, w.limit
	lists := m.scratch.freeLists(d)
	causes := m.candidates(now, in, w, lists)
	ranked, v := m.judge(now, in, w, lists, causes)
	protected, reason := lists.protected, v.reason
	first := d.Ranking == nil && d.Protected == nil && d.Signal.Threshold.Signal == "" || reason == ""
	if first {
		d.Signal, d.Ranking, d.Protected, d.Reason = met, ranked, protected, reason
	}
	d.BreakerOpen = d.BreakerOpen || v.breakerOpen
	d.Unexplained = d.Unexplained || m.explain.doubts[w.Signal].reason != ""
	if reason != "" {
		return false
	}
	c := &ranked[0].Candidate
	m.scratch.eviction[0] = Eviction{
		Pod: *c.Pod, Signal: w.Signal, GracePeriodSeconds: m.config.gracePeriod(w, c.Object),
		Reason:     ReasonEvicted,
		Disruption: true, CutsGracePeriod: c.Keys.Dying, kind: w.info.kind, hard: w.Hard(),
		suspected: v.suspected,
	}
	if r := expected(c, w); r.OK && r.V <= implausible {
		m.scratch.eviction[0].Returns = r.V
	}
	d.Evictions = m.scratch.eviction[:]
	if !in.Terse {
		d.AddTexts()
	}
	return true
}

// verdict is the judgement on evicting the first pod of a ranking.
type verdict struct {
	reason      string // why no pod is evicted now; empty: the first pod may be evicted
	breakerOpen bool
	suspected   bool // measurements do not explain the disk's shortage
}

// judge ranks the candidates of a threshold, and returns whether the first pod may be evicted now.
func (m *Manager) judge(now time.Time, in Input, w *watched, l *lists, causes int) (ranked []Ranked,
	v verdict) {
	ranked = l.rank()
	withheld := m.withheldReason(now, in, w, ranked, causes)
	if withheld == "" && w.info.kind.disk() {
		var suspects *diskChange
		withheld, suspects = m.explain.judge(now, in, w, ranked, &m.watch.disks, m.looks.lastFull)
		if suspects != nil {
			ranked = l.suspect(suspects)
			// a shorter grace period of an eviction by suspicion costs no further pod
			dying := m.evictions.terminating(ranked[0].Pod.PodRef.UID)
			if dying != nil && dying.e.suspected {
				withheld = ""
			}
			if v.suspected = withheld == ""; !v.suspected {
				ranked = l.acquit()
			}
		}
	}
	if v.breakerOpen = m.breakers.holdsBack(now, w, ranked); v.breakerOpen {
		withheld = m.breakers.openReason(w, in.Growing)
	}
	v.reason = withheld
	return ranked, v
}

// withheldReason returns why no pod is evicted for a threshold now, whatever the ranking; empty if
// the first pod may be evicted.
func (m *Manager) withheldReason(now time.Time, in Input, w *watched, ranked []Ranked,
	causes int) string {
	if reason := m.evictions.blocked(now, w, &m.watch); reason != "" {
		return reason
	}
	disk := w.info.kind.disk()
	switch {
	case disk && in.ObserveDisks:
		return "disk signals only set conditions (disk: observe, or the node has a kubelet)"
	case disk && in.Measuring && !m.explain.rates.urgent(w):
		return "disk usage of pods is being measured"
	case disk && !m.watch.disks.layout.OK &&
		(now.Sub(w.metSince) < suspectDelay || !m.explain.rates.urgent(w)):
		return "file system layout is not known yet"
	case w.info.kind.pressure() && causes == 0:
		return fmt.Sprintf("no pod found that causes %s", w.Signal)
	case len(ranked) == 0 && w.info.kind.pressure():
		return fmt.Sprintf("the pod that causes %s is protected", w.Signal)
	case len(ranked) == 0:
		return "no eligible pod"
	}
	return ""
}

// findMet returns a threshold among those that are met.
func findMet(met []Met, w *watched) *Met {
	for i := range met {
		if met[i].Threshold.same(&w.Threshold) {
			return &met[i]
		}
	}
	return &Met{Threshold: w.Threshold} // not reached: w is due
}

// Rehearse ranks the pods of a look for each threshold of memory and PIDs, met or not. It changes
// nothing but the buffers, which grow, so that the step that finds a victim allocates nothing.
func (m *Manager) Rehearse(now time.Time, in Input) {
	for _, buffer := range []*[]Met{&m.scratch.met, &m.readyMet} {
		*buffer = slices.Grow((*buffer)[:0], len(m.watch.all))
	}
	for i := range m.watch.all {
		if w := &m.watch.all[i]; w.info.kind.memoryView() {
			for j := range m.scratch.lists {
				m.candidates(now, in, w, &m.scratch.lists[j])
				m.scratch.lists[j].rank()
			}
		}
	}
}

// PodToRead returns the index in the Summary of a pod that must be read in full before the next
// step, or -1. Without the read the step would decide by an upper bound. The pod is a terminating
// one, or one that decides which pod a threshold for memory evicts first (lists.podToRead), or one
// that the circuit breaker compares. PodToRead does not allocate.
func (m *Manager) PodToRead(now time.Time, in Input) int {
	s := in.Summary
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Memory.Quick && m.evictions.terminating(p.PodRef.UID) != nil {
			return i
		}
	}
	for i := range m.watch.all {
		w := &m.watch.all[i]
		if !w.info.kind.memoryView() || !w.observed.OK || !w.met || now.Sub(w.metSince) < w.Grace {
			continue
		}
		l := &m.scratch.lists[0]
		m.candidates(now, in, w, l)
		unread := m.breakers.podToRead(now, w, l.eligible)
		if pod := l.podToRead(); pod != nil {
			unread = pod
		}
		for j := range s.Pods {
			if &s.Pods[j] == unread {
				return j
			}
		}
	}
	return -1
}
