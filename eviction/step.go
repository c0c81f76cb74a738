package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"jettison/stats"
)

// arrange takes the layout of the file systems, where it is known, and derives containerfs' thresholds from it. One that is not known
// now is as it was.
func (m *Manager) arrange(n *stats.NodeStats) {
	if n.Layout.OK && n.Layout != m.layout {
		m.layout = n.Layout
		m.watch(withContainerFs(m.config.Thresholds, m.layout.V))
	}
}

// judge finds out which thresholds are met. A signal that is not observed is neither met nor unmet.
func (m *Manager) judge(now time.Time, s *stats.Summary) {
	for i := range m.watched {
		w := &m.watched[i]
		w.met, w.due = false, false
		w.observed = m.observe(now, s, w)
		w.notes(&s.Node.Pods)
		if w.observed.Gone {
			w.since, w.held, w.unseen, w.raised = time.Time{}, false, time.Time{}, time.Time{}
		}
		if !w.observed.OK {
			if w.unseen.IsZero() && !w.observed.Gone {
				w.unseen = now
			}
			continue
		}
		w.unseen, w.read = time.Time{}, now
		w.limit = w.Value.Of(w.observed.Capacity)
		w.met = w.observed.Short(w.limit) || w.held && w.observed.Short(w.enough(w.observed.Capacity))
		switch {
		case !w.met:
			w.since, w.held = time.Time{}, false
		case w.since.IsZero() || now.Before(w.since): // a clock that was set back must not make it wait
			w.since, w.first = now, w.observed
		}
	}
}

// enough is what must be available for an eviction to be over: the threshold and the minimum reclaim, which a signal that rises has not.
func (w *watched) enough(capacity uint64) uint64 {
	limit := w.Value.Of(capacity)
	if w.MinReclaim != nil {
		limit = stats.SaturatingAdd(limit, w.MinReclaim.Of(capacity))
	}
	return limit
}

// ripen finds the thresholds that ask for a victim: their grace periods are over, and there is news of their signals since the
// step before (pkg/kubelet/eviction/helpers.go thresholdsMetGracePeriod, thresholdsUpdatedStats). A reading without a time is news.
func (m *Manager) ripen(now time.Time, memoryOnly bool) {
	m.order = m.order[:0]
	for i := range m.watched {
		w := &m.watched[i]
		w.asked = false
		if !w.observed.OK || memoryOnly && !w.info.kind.memoryView() {
			continue
		}
		news := w.observed.Time.IsZero() || w.observed.Time.After(w.seen)
		w.seen = w.observed.Time
		w.held = w.met && now.Sub(w.since) >= w.Grace
		if w.due = w.held && news; w.due {
			m.order = append(m.order, i)
		}
	}
	if len(m.order) > 1 {
		slices.SortStableFunc(m.order, func(a, b int) int { return urgency(&m.watched[a].Threshold, &m.watched[b].Threshold) })
	}
}

// urgency orders thresholds: hard before soft, always; then memory first.
func urgency(a, b *Threshold) int {
	return cmp.Or(compareBool(a.Hard(), b.Hard()), cmp.Compare(signals[a.Signal].order, signals[b.Signal].order))
}

// met are the thresholds that are met, most urgent first, in a buffer that is used again; nil: none is.
func (m *Manager) met(buffer *[]Met) []Met {
	met := (*buffer)[:0]
	for i := range m.watched {
		if w := &m.watched[i]; w.met {
			met = append(met, Met{Threshold: w.Threshold, Observed: w.observed, Limit: w.limit, Since: w.since, First: w.first, Due: w.due})
		}
	}
	if *buffer = met; len(met) == 0 {
		return nil
	}
	if len(met) > 1 {
		slices.SortStableFunc(met, func(a, b Met) int { return urgency(&a.Threshold, &b.Threshold) })
	}
	return met
}

// hold finds the conditions that are true: those whose thresholds are met, even a soft one in its grace period; those observed within
// the transition period; and those that one which cannot be observed held when it was observed last, as the kubelet's stay as they
// are while its summary fails. With a transition period of 0 the kubelet reports none at all (weakness 24).
func (m *Manager) hold(now time.Time) []Condition {
	var held uint8
	for i := range m.watched {
		w := &m.watched[i]
		bit := w.info.condition.index()
		if w.met {
			m.conditionAt[bit], w.raised = now, now
		}
		lately := !w.raised.IsZero() && w.read.Sub(w.raised) < m.config.PressureTransitionPeriod
		if w.met || !w.observed.OK && (!w.since.IsZero() || lately) {
			held |= 1 << bit
		}
	}
	for bit, at := range m.conditionAt {
		if now.Before(at) {
			m.conditionAt[bit], at = now, now
		}
		if !at.IsZero() && now.Sub(at) < m.config.PressureTransitionPeriod {
			held |= 1 << bit
		}
	}
	if held != m.reported {
		m.reported, m.conditions = held, conditionSets[held]
	}
	return m.conditions
}

// reclaims is what the kubelet reclaims for a disk signal, by the layout (pkg/kubelet/eviction/helpers.go
// buildSignalToNodeReclaimFuncs):
//
//	layout            nodefs              imagefs             containerfs
//	one               containers, images  the same            the same
//	dedicated imagefs nothing             containers, images  containers, images
//	split             containers          images              containers
func reclaims(l stats.Layout, fs fileSystem) []Reclaimable {
	switch {
	case fs == noFs || l.DedicatedImageFs && !l.SplitContainerFs && fs == nodeFs:
		return nil
	case l.DedicatedImageFs && l.SplitContainerFs && fs == imageFs:
		return []Reclaimable{ReclaimImages}
	case l.DedicatedImageFs && l.SplitContainerFs:
		return []Reclaimable{ReclaimContainers}
	}
	return []Reclaimable{ReclaimContainers, ReclaimImages}
}

// wish asks for what can be reclaimed for every threshold that asks for a victim, whichever comes first.
func (m *Manager) wish(d *Decision) {
	if !m.layout.OK {
		return
	}
	for _, what := range []Reclaimable{ReclaimContainers, ReclaimImages} {
		w := Wish{What: what}
		for _, i := range m.order {
			t := &m.watched[i]
			if slices.Contains(reclaims(m.layout.V, t.info.fs), what) {
				t.asked = true
				if !slices.Contains(w.Signals, t.Signal) {
					w.Signals = append(w.Signals, t.Signal)
				}
			}
		}
		if len(w.Signals) > 0 {
			d.Reclaim = append(d.Reclaim, w)
		}
	}
}

// decide has the thresholds ask for a victim, in order, until one gets it. Those for which something is being reclaimed wait,
// and while a hard one does, no soft one gets a victim before it.
func (m *Manager) decide(now time.Time, in Input, d *Decision, reclaimed bool) {
	hardWaits := false
	if len(m.order) == 0 {
		d.Signal, d.Reason = d.Met[0], "its grace period is not over"
		if now.Sub(d.Signal.Since) >= d.Signal.Threshold.Grace {
			d.Reason = "it was not observed anew since the last step"
		}
	}
	for _, i := range m.order {
		w := &m.watched[i]
		if !w.due {
			continue
		}
		if w.asked && !reclaimed || hardWaits && !w.Hard() {
			hardWaits = hardWaits || w.Hard()
			if d.Reason == "" {
				d.Signal, d.Reason = *find(d.Met, w), "what can be reclaimed comes first"
			}
			continue
		}
		if m.choose(now, in, d, w) {
			return
		}
	}
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

// choose ranks the pods for one threshold and evicts the first, if one may go now. The first threshold's ranking and reason
// stay in the decision until another one has a victim.
func (m *Manager) choose(now time.Time, in Input, d *Decision, w *watched) bool {
	met := *find(d.Met, w)
	met.Observed, met.Limit = w.observed, w.limit // after a reclaim the look that the pods are ranked by
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
		Pod: *v.Pod, Signal: w.Signal, GracePeriodSeconds: m.gracePeriod(w, v.Object), Reason: ReasonEvicted,
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

// hardGrace is the grace period of an eviction that cannot wait (pkg/kubelet/eviction/eviction_manager.go
// immediateEvictionGracePeriodSeconds), and the least there is.
const hardGrace = 1

// gracePeriod of an eviction in seconds: for a soft threshold the pod's own, up to the configured maximum.
func (m *Manager) gracePeriod(w *watched, object *Pod) int64 {
	if w.Hard() {
		return hardGrace
	}
	seconds := m.config.MaxPodGracePeriodSeconds
	if object != nil && object.terminationGrace.OK {
		seconds = min(seconds, object.terminationGrace.V)
	}
	return max(seconds, hardGrace)
}

// whyNot says why no pod may be evicted for a threshold now; empty: the first in the ranking goes.
func (m *Manager) whyNot(now time.Time, in Input, w *watched, ranked []Ranked, causes int) (reason string, stopped bool) {
	if m.holdsBack(now, w, ranked) {
		return m.stoppedBecause(w, in.Growing), true
	}
	if reason := m.blocked(now, w); reason != "" {
		return reason, false
	}
	switch {
	case w.info.kind.disk() && in.ObserveDisks:
		return "disk signals only set conditions here (disk: observe, or a kubelet is there)", false
	case w.info.kind.disk() && in.Measuring:
		return "what pods take of the disk is being measured", false
	case w.info.kind.disk() && !m.layout.OK:
		return "the layout of the file systems is not known yet", false
	case w.info.kind.pressure() && causes == 0:
		return fmt.Sprintf("no pod was found that causes %s", w.Signal), false
	case len(ranked) == 0 && w.info.kind.pressure():
		return fmt.Sprintf("the pod that causes %s may not be evicted", w.Signal), false
	case len(ranked) == 0:
		return "no pod may be evicted", false
	case w.info.kind.disk():
		return m.unexplained(now, in, w, ranked), false
	}
	return "", false
}

// candidates gathers the pods that live on the node: those that may be evicted for a threshold, measured for it, and those that may
// not. For a pressure signal only those who cause it count, how many there are is returned.
func (m *Manager) candidates(now time.Time, in Input, w *watched, out *lists) (causes int) {
	s := in.Summary
	out.may, out.mayNot = out.may[:0], out.mayNot[:0]
	seen := 0
	consider := func(pod *stats.PodStats, object *Pod) {
		if w.info.kind.pressure() {
			if !m.caused(w, pod).OK {
				return
			}
			causes++
		}
		c := m.config.Policy.candidate(pod, object)
		if c.Protected != "" {
			out.mayNot = append(out.mayNot, c)
			return
		}
		if l := m.dying(pod.PodRef.UID); l != nil {
			spared, late := l.spared(w), !w.Hard() && m.lingers(now, l) && l.killed.Time.IsZero()
			// It is on its way out as fast as this threshold could have it.
			if ((l.e.hard || l.hastened()) && !spared || !w.Hard() || l.e.Local() && w.info.kind.disk()) && !late {
				return
			}
			c.Keys.Dying, c.Keys.eases = true, l.e.eases(w.info.kind) || (spared || late) && l.endsAlone(w)
		}
		m.measure(&c, w)
		c.Keys.Open = openAbove(&c.Keys, s.Node.Memory.CapacityBytes)
		if w.info.kind == kindMemoryPressure && c.Keys.standing() == withinRequest {
			c.Protected = "within its request: it does not go for pressure"
			out.mayNot = append(out.mayNot, c)
			return
		}
		c.Keys.SetAside = now.Before(m.aside[pod.PodRef.UID].until)
		c.Keys.Returned = m.evicted[pod.PodRef.UID].times
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
		m.unseen(in, consider)
	}
	return causes
}

// unseen considers the pods whose object is known and that a foreign Summary does not have: as the kubelet does, but they are not
// measured, so they come last.
func (m *Manager) unseen(in Input, consider func(*stats.PodStats, *Pod)) {
	has := make(map[string]struct{}, len(in.Summary.Pods))
	for i := range in.Summary.Pods {
		has[in.Summary.Pods[i].PodRef.UID] = struct{}{}
	}
	for uid, object := range in.Pods {
		if _, ok := has[uid]; !ok && object != nil && !object.finished {
			consider(&object.unseen, object)
		}
	}
}

// empty: nothing lives in the pod, so there is no pod to evict. The kernel knows; where it was not asked, the pod's phase counts.
func empty(p *stats.PodStats, object *Pod) bool {
	if p.Populated.OK {
		return !p.Populated.V
	}
	return object != nil && object.finished
}

// object is what is known of a pod by its object; nil: nothing is, or it is of another pod than the runtime has by this UID.
func (in *Input) object(p *stats.PodStats) *Pod {
	if object := in.Pods[p.PodRef.UID]; object != nil && object.of(p) {
		return object
	}
	return nil
}
