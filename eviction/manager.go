package eviction

import (
	"maps"
	"time"

	"jettison/stats"
)

// Config of a Manager.
type Config struct {
	Hard            []Threshold
	MemoryAvailable stats.MemoryAvailable
	Policy          Policy
}

// settleLimit is how long, after a victim died, no other one is chosen unless the shortage gets much worse: a runtime that
// tears a pod down takes memory first, and what lay in the pod's /dev/shm comes back only with its sandbox.
const settleLimit = 2 * time.Second

// How long a pod that was killed and did not die is ranked last; doubled each time, up to the maximum.
const (
	setAsideFirst = 30 * time.Second
	setAsideMax   = 5 * time.Minute
)

// Manager decides. It remembers since when thresholds are met, who is being evicted, and who would not die. The zero value
// is not usable; see NewManager.
type Manager struct {
	config   Config
	since    map[stats.Signal]time.Time // first observed below, without a break
	pending  string                     // UID of the eviction under way; empty: none
	settling settling
	aside    map[string]setAside // by pod UID
}

// settling is the time after a victim's death in which what it returns is still on its way.
type settling struct {
	uid   string
	until time.Time // zero: not settling
	level uint64    // bytes that were available when the victim was killed
}

type setAside struct {
	until time.Time
	next  time.Duration // how long the next time
}

// NewManager makes a manager that has seen nothing yet.
func NewManager(c Config) *Manager {
	return &Manager{config: c, since: map[stats.Signal]time.Time{}, aside: map[string]setAside{}}
}

// Acts reports whether this version evicts for a signal.
func Acts(s stats.Signal) bool { return s == stats.SignalMemoryAvailable }

// Memory is the observation that memory thresholds are judged by.
func (m *Manager) Memory(node *stats.NodeStats) stats.Observation {
	return node.Memory.Available(m.config.MemoryAvailable)
}

// Near reports whether less is available than so many times a threshold.
func (m *Manager) Near(node *stats.NodeStats, times uint64) bool {
	o := m.Memory(node)
	for _, t := range m.config.Hard {
		if o.OK && Acts(t.Signal) && o.Available/times < t.Value.Of(o.Capacity) {
			return true
		}
	}
	return false
}

// Observe is the cheap half of Step: it judges the node's memory, remembers since when a threshold is met and returns those
// that are. A signal that was not observed is neither met nor unmet: what was known of it stays.
func (m *Manager) Observe(now time.Time, node *stats.NodeStats) []Met {
	var met []Met
	for _, t := range m.config.Hard {
		if !Acts(t.Signal) {
			continue
		}
		o := m.Memory(node)
		if !o.OK {
			continue
		}
		limit := t.Value.Of(o.Capacity)
		if o.Available >= limit {
			delete(m.since, t.Signal)
			continue
		}
		if _, ok := m.since[t.Signal]; !ok {
			m.since[t.Signal] = now
		}
		met = append(met, Met{Threshold: t, Observed: o, Limit: limit, Since: m.since[t.Signal]})
	}
	return met
}

// Step decides on one look. At most one pod is to be evicted, and none while another eviction is under way: the next look
// tells whether it was enough.
func (m *Manager) Step(now time.Time, s *stats.Summary) Decision {
	d := Decision{Time: now, Met: m.Observe(now, &s.Node), Victim: -1}
	if len(d.Met) == 0 {
		return d
	}
	d.Signal = d.Met[0]
	var candidates []Candidate
	for _, pod := range s.Pods {
		if pod.Populated.OK && !pod.Populated.V {
			continue // nothing lives in it: a finished pod's cgroup
		}
		c := m.config.Policy.candidate(pod)
		if c.Protected != "" {
			d.Protected = append(d.Protected, c)
			continue
		}
		c.SetAside = now.Before(m.aside[pod.PodRef.UID].until)
		candidates = append(candidates, c)
	}
	decidedBy := rank(candidates, memoryRanking)
	for i, c := range candidates {
		d.Ranking = append(d.Ranking, Ranked{Candidate: c, DecidedBy: decidedBy[i]})
	}
	switch {
	case m.pending != "":
		d.Reason = "the eviction of pod " + m.pending + " is under way"
	case now.Before(m.settling.until) && !m.Worse(d.Signal):
		d.Reason = "what the eviction of pod " + m.settling.uid + " returns is still on its way"
	case len(candidates) == 0:
		d.Reason = "no pod may be evicted"
	case candidates[0].SetAside:
		d.Reason = "every pod that may be evicted was killed already and did not die"
	default:
		d.Victim = 0
		d.Reason = d.Ranking[0].Explain()
	}
	return d
}

// Begin tells the manager that a pod is being evicted, and how much was available, in bytes, when it was killed.
func (m *Manager) Begin(uid string, available uint64) {
	m.pending = uid
	m.settling = settling{uid: uid, level: available}
}

// Worse reports whether less than half of what was available when the last victim was killed is available now: then somebody
// else is eating it, faster than what the victim returns. A small dip is the runtime's own work.
func (m *Manager) Worse(met Met) bool { return met.Observed.Available < m.settling.level/2 }

// Done tells what became of it, and when. A pod that did not die is set aside, longer each time; one that died starts afresh, and
// nobody else is chosen for the same shortage until the runtime has cleaned up after it (Cleaned) or two seconds are over.
func (m *Manager) Done(now time.Time, uid string, died bool) {
	if m.pending == uid {
		m.pending = ""
	}
	maps.DeleteFunc(m.aside, func(_ string, a setAside) bool { return now.Sub(a.until) > 2*setAsideMax })
	if died {
		delete(m.aside, uid)
		if m.settling.uid == uid {
			m.settling.until = now.Add(settleLimit)
		}
		return
	}
	a := m.aside[uid]
	a.next = min(max(a.next*2, setAsideFirst), setAsideMax)
	a.until = now.Add(a.next)
	m.aside[uid] = a
}

// Cleaned tells that the runtime has cleaned up after a pod: what its eviction returns is there.
func (m *Manager) Cleaned(uid string) {
	if m.settling.uid == uid {
		m.settling = settling{}
	}
}
