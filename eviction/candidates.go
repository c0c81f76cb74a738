package eviction

import (
	"fmt"
	"time"

	"jettison/stats"
)

// candidates gathers the pods that live on the node: those that may be evicted for a threshold,
// measured for it, and those that may not. For a pressure signal only those who cause it count, how
// many there are is returned.
func (m *Manager) candidates(now time.Time, in Input, w *watched, out *lists) (causes int) {
	s := in.Summary
	out.may, out.mayNot = out.may[:0], out.mayNot[:0]
	seen := 0
	consider := func(pod *stats.PodStats, object *Pod) {
		var cause stats.Opt[uint64]
		if w.info.kind.pressure() {
			if cause = m.causes.caused(w, pod); !cause.OK {
				return
			}
			causes++
		}
		c := m.config.Policy.candidate(pod, object)
		if c.Protected != "" {
			out.mayNot = append(out.mayNot, c)
			return
		}
		if !m.evictions.fillKeys(&c.Keys, now, pod.PodRef.UID, w) {
			return
		}
		m.config.Policy.measure(&c, w, &m.watch.disks, cause)
		c.Keys.Open = openAbove(&c.Keys, s.Node.Memory.CapacityBytes)
		if w.info.kind == kindMemoryPressure && c.Keys.standing() == withinRequest {
			c.Protected = "within its request: it does not go for pressure"
			out.mayNot = append(out.mayNot, c)
			return
		}
		m.evictions.history.fillKeys(&c.Keys, now, pod.PodRef.UID)
		out.may = append(out.may, c)
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

// choose ranks the pods for one threshold and evicts the first, if one may go now. The first
// threshold's ranking and reason stay in the decision until another one has a victim.
func (m *Manager) choose(now time.Time, in Input, d *Decision, w *watched) bool {
	met := *find(d.Met, w)
	// after a reclaim the look that the pods are ranked by
	met.Observed, met.Limit = w.observed, w.limit
	lists := m.scratch.next(d)
	causes := m.candidates(now, in, w, lists)
	ranked, protected := lists.rank(), lists.mayNot
	reason, stopped := m.whyNot(now, in, w, ranked, causes)
	first := d.Ranking == nil && d.Protected == nil && d.Signal.Threshold.Signal == "" || reason == ""
	if first {
		d.Signal, d.Ranking, d.Protected, d.Reason = met, ranked, protected, reason
	}
	d.Stopped = d.Stopped || stopped
	d.Unexplained = d.Unexplained || m.explain.doubts[w.Signal].reason != ""
	if reason != "" {
		return false
	}
	v := &ranked[0].Candidate
	m.scratch.eviction[0] = Eviction{
		Pod: *v.Pod, Signal: w.Signal, GracePeriodSeconds: m.config.gracePeriod(w, v.Object),
		Reason:     ReasonEvicted,
		Disruption: true, Hastens: v.Keys.Dying, kind: w.info.kind, hard: w.Hard(),
	}
	if r := expected(v, w); r.OK && r.V <= implausible {
		m.scratch.eviction[0].Returns = r.V
	}
	d.Evictions = m.scratch.eviction[:]
	if !in.Terse {
		d.Words()
	}
	return true
}

// whyNot says why no pod may be evicted for a threshold now; empty: the first in the ranking goes.
func (m *Manager) whyNot(now time.Time, in Input, w *watched, ranked []Ranked,
	causes int) (reason string, stopped bool) {
	if m.breakers.holdsBack(now, w, ranked) {
		return m.breakers.stoppedBecause(w, in.Growing), true
	}
	if reason := m.evictions.blocked(now, w, &m.watch); reason != "" {
		return reason, false
	}
	switch {
	case w.info.kind.disk() && in.ObserveDisks:
		return "disk signals only set conditions here (disk: observe, or a kubelet is there)", false
	case w.info.kind.disk() && in.Measuring:
		return "what pods take of the disk is being measured", false
	case w.info.kind.disk() && !m.watch.disks.layout.OK:
		return "the layout of the file systems is not known yet", false
	case w.info.kind.pressure() && causes == 0:
		return fmt.Sprintf("no pod was found that causes %s", w.Signal), false
	case len(ranked) == 0 && w.info.kind.pressure():
		return fmt.Sprintf("the pod that causes %s may not be evicted", w.Signal), false
	case len(ranked) == 0:
		return "no pod may be evicted", false
	case w.info.kind.disk():
		return m.explain.unexplained(now, in, w, ranked, &m.watch.disks, m.looks.lastFull), false
	}
	return "", false
}

// find is a threshold among those that are met.
func find(met []Met, w *watched) *Met {
	for i := range met {
		if met[i].Threshold.same(&w.Threshold) {
			return &met[i]
		}
	}
	return &Met{Threshold: w.Threshold} // it is there: w is due
}

// Unread returns the index in the Summary of a pod that has to be read in full before the next
// step, which would be decided by no more than its upper bound: a pod that a threshold for memory
// would have first, or one that is on its way out. -1: none has to. A pod that does not come first
// by an upper bound does not by the truth either, so no other one needs to be read. It does not
// allocate.
func (m *Manager) Unread(now time.Time, in Input) int {
	s := in.Summary
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Memory.Quick && m.evictions.dying(p.PodRef.UID) != nil {
			return i
		}
	}
	for i := range m.watch.all {
		w := &m.watch.all[i]
		if !w.info.kind.memoryView() || !w.observed.OK || !w.met || now.Sub(w.since) < w.Grace {
			continue
		}
		l := &m.scratch.lists[0]
		m.candidates(now, in, w, l)
		var first *Candidate
		for j := range l.may {
			if c := &l.may[j]; first == nil || goesBefore(c, first) {
				first = c
			}
		}
		unread := m.breakers.unknown(now, w, l.may)
		if first != nil && first.Pod.Memory.Quick {
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
