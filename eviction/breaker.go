package eviction

import "fmt"

// The breaker stops evictions that do not help: something else than pods takes what is short, and each further victim dies for nothing.

// breakerLimit is after how many evictions in a row that did not lower the pressure the breaker stops.
const breakerLimit = 3

// Growth of a cgroup.
type Growth struct {
	Cgroup string // path below the root
	Bytes  int64  // memory that it uses more than before
}

// count takes whether an eviction that is over lowered the pressure. false: that is not observed yet.
func (m *Manager) count(l *Life) bool {
	if l.e.Local() || !m.config.Breaker {
		return true
	}
	for i := range m.watched {
		w := &m.watched[i]
		if w.Signal != l.e.Signal || w.Hard() != l.e.hard {
			continue
		}
		switch {
		case !w.observed.OK:
			return false
		case w.met && !w.observed.Better(l.level):
			m.futile[l.e.kind]++
		default:
			m.futile[l.e.kind] = 0
		}
		break
	}
	return true
}

// calm lets the breaker act again for what is not short any more.
func (m *Manager) calm() {
	var short, observed [kinds]bool
	for i := range m.watched {
		w := &m.watched[i]
		observed[w.info.kind] = observed[w.info.kind] || w.observed.OK
		short[w.info.kind] = short[w.info.kind] || !w.since.IsZero()
	}
	for k := range m.futile {
		if observed[k] && !short[k] {
			m.futile[k] = 0
		}
	}
}

// stops reports whether evictions are held back for something that is short.
func (m *Manager) stops() bool {
	for _, n := range m.futile {
		if m.config.Breaker && n >= breakerLimit {
			return true
		}
	}
	return false
}

// stoppedBecause names what grows instead.
func (m *Manager) stoppedBecause(w *watched, growing []Growth) string {
	reason := fmt.Sprintf("%d evictions did not lower the pressure on %s: stopped", m.futile[w.info.kind], w.Signal)
	var most Growth
	for _, g := range growing {
		if g.Bytes > most.Bytes {
			most = g
		}
	}
	if most.Bytes > 0 {
		reason += fmt.Sprintf(", %s grows instead, by %s", most.Cgroup, bytesQuantity(uint64(most.Bytes)))
	}
	return reason
}
