package eviction

import (
	"fmt"
	"time"

	"jettison/stats"
)

// candidates collects the pods that run on the node: eligible pods, measured for a threshold, and
// protected pods. For a pressure signal it collects only pods that cause the pressure, and returns
// their number.
func (m *Manager) candidates(now time.Time, in Input, w *watched, out *lists) (causes int) {
	s := in.Summary
	out.eligible, out.protected = out.eligible[:0], out.protected[:0]
	seen := 0
	consider := func(pod *stats.PodStats, object *Pod) {
		var cause stats.Opt[uint64]
		if w.info.kind.pressure() {
			if cause = m.causes.partIn(w, pod); !cause.OK {
				return
			}
			causes++
		}
		c := m.config.Policy.candidate(pod, object)
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
	ranked, protected := lists.rank(), lists.protected
	reason, stopped := m.withheldReason(now, in, w, ranked, causes)
	first := d.Ranking == nil && d.Protected == nil && d.Signal.Threshold.Signal == "" || reason == ""
	if first {
		d.Signal, d.Ranking, d.Protected, d.Reason = met, ranked, protected, reason
	}
	d.BreakerOpen = d.BreakerOpen || stopped
	d.Unexplained = d.Unexplained || m.explain.doubts[w.Signal].reason != ""
	if reason != "" {
		return false
	}
	v := &ranked[0].Candidate
	m.scratch.eviction[0] = Eviction{
		Pod: *v.Pod, Signal: w.Signal, GracePeriodSeconds: m.config.gracePeriod(w, v.Object),
		Reason:     ReasonEvicted,
		Disruption: true, CutsGracePeriod: v.Keys.Dying, kind: w.info.kind, hard: w.Hard(),
	}
	if r := expected(v, w); r.OK && r.V <= implausible {
		m.scratch.eviction[0].Returns = r.V
	}
	d.Evictions = m.scratch.eviction[:]
	if !in.Terse {
		d.AddTexts()
	}
	return true
}

// withheldReason returns why no pod is evicted for a threshold now; empty if the first pod of the
// ranking may be evicted. stopped reports that the circuit breaker is open.
func (m *Manager) withheldReason(now time.Time, in Input, w *watched, ranked []Ranked,
	causes int) (reason string, stopped bool) {
	if m.breakers.holdsBack(now, w, ranked) {
		return m.breakers.openReason(w, in.Growing), true
	}
	if reason := m.evictions.blocked(now, w, &m.watch); reason != "" {
		return reason, false
	}
	switch {
	case w.info.kind.disk() && in.ObserveDisks:
		return "disk signals only set conditions (disk: observe, or the node has a kubelet)", false
	case w.info.kind.disk() && in.Measuring:
		return "disk usage of pods is being measured", false
	case w.info.kind.disk() && !m.watch.disks.layout.OK:
		return "file system layout is not known yet", false
	case w.info.kind.pressure() && causes == 0:
		return fmt.Sprintf("no pod found that causes %s", w.Signal), false
	case len(ranked) == 0 && w.info.kind.pressure():
		return fmt.Sprintf("the pod that causes %s is protected", w.Signal), false
	case len(ranked) == 0:
		return "no eligible pod", false
	case w.info.kind.disk():
		return m.explain.unexplained(now, in, w, ranked, &m.watch.disks, m.looks.lastFull), false
	}
	return "", false
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

// PodToRead returns the index in the Summary of a pod that must be read in full before the next
// step, or -1. Without the read the step would decide by an upper bound. The pod is a terminating
// one, or the pod that a threshold for memory would evict first, or one that the circuit breaker
// compares. A pod that is not first by an upper bound is not first by its exact value either.
// PodToRead does not allocate.
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
		if first := l.first(); first != nil && first.Pod.Memory.Quick {
			unread = first.Pod
		}
		for j := range s.Pods {
			if &s.Pods[j] == unread {
				return j
			}
		}
	}
	return -1
}
