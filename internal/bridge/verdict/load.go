package verdict

import (
	"math"
	"slices"
	"time"

	"jettison/api"
	"jettison/stats"
)

// Limits on writing a load.
const (
	LoadPoints      = 10              // change in points that makes a write due
	LoadMinInterval = time.Minute     // shortest time between two writes
	LoadMaxInterval = 5 * time.Minute // time after which a write is due without a change
)

// LoadOf returns the load in a state. !ok: the state contains no load.
func LoadOf(s *api.State) (l api.NodeLoad, ok bool) {
	n := s.Load
	if n == nil {
		return l, false
	}
	l = api.NodeLoad{Time: n.Time, MemoryCapacityBytes: n.Memory.CapacityBytes,
		WorkingSetBytes: n.Memory.WorkingSetBytes}
	if l.MemoryCapacityBytes != nil && *l.MemoryCapacityBytes > 0 {
		whole := *l.MemoryCapacityBytes
		if l.WorkingSetBytes != nil {
			used := percent(float64(*l.WorkingSetBytes), whole)
			l.WorkingSetPercent = &used
		}
		setHeadroom(&l, s.Signals, whole)
	}
	l.Pressure = map[string]float64{}
	for name, p := range map[string]*api.PressureState{"cpu": n.Pressure.CPU,
		"memory": n.Pressure.Memory, "io": n.Pressure.IO} {
		if p == nil {
			continue
		}
		if p.Some != nil {
			l.Pressure[name+"Some"] = round(p.Some.Avg60)
		}
		if p.Full != nil {
			l.Pressure[name+"Full"] = round(p.Full.Avg60)
		}
	}
	l.AgentVersion, l.DryRun, l.Nearest = s.Version, s.DryRun, nearestThreshold(s.Signals)
	if n := len(s.Evicted); n > 0 {
		last := &s.Evicted[n-1]
		l.LastEviction = &api.LastEviction{Time: last.Time, Signal: last.Signal}
	}
	return l, true
}

// nearestThreshold returns the threshold with the least headroom; nil: no signal with a threshold is
// observed.
func nearestThreshold(signals []api.SignalState) (nearest *api.NearestThreshold) {
	for i := range signals {
		g := &signals[i]
		if !g.Observed || g.Capacity == 0 || len(g.Limits) != len(g.Threshold) {
			continue
		}
		for at, limit := range g.Limits {
			left := float64(g.Available) - float64(limit)
			if g.Signal.Pressure() {
				left = -left
			}
			share := percent(left, g.Capacity)
			if nearest == nil || share < nearest.HeadroomPercent {
				nearest = &api.NearestThreshold{Signal: g.Signal, Threshold: g.Threshold[at],
					HeadroomPercent: share}
			}
		}
	}
	return nearest
}

func setHeadroom(l *api.NodeLoad, signals []api.SignalState, whole uint64) {
	for i := range signals {
		g := &signals[i]
		if g.Signal != stats.SignalMemoryAvailable || !g.Observed || len(g.Limits) == 0 {
			continue
		}
		left := int64(g.Available) - int64(slices.Max(g.Limits))
		share := percent(float64(left), whole)
		l.HeadroomBytes, l.HeadroomPercent = &left, &share
	}
}

func percent(part float64, whole uint64) float64 { return round(100 * part / float64(whole)) }

func round(v float64) float64 { return math.Round(10*v) / 10 }

// LoadDue reports whether a load is to be written. last was written at lastAt; nil: none was
// written.
func LoadDue(now time.Time, l, last *api.NodeLoad, lastAt time.Time) bool {
	switch since := now.Sub(lastAt); {
	case last == nil, since >= LoadMaxInterval:
		return true
	case since < LoadMinInterval:
		return false
	}
	if moved(l.WorkingSetPercent, last.WorkingSetPercent) ||
		moved(l.HeadroomPercent, last.HeadroomPercent) {
		return true
	}
	for name, share := range l.Pressure {
		if math.Abs(share-last.Pressure[name]) >= LoadPoints {
			return true
		}
	}
	for name, share := range last.Pressure {
		if _, present := l.Pressure[name]; !present && share >= LoadPoints {
			return true
		}
	}
	return false
}

func moved(a, b *float64) bool {
	if a == nil || b == nil {
		return (a == nil) != (b == nil)
	}
	return math.Abs(*a-*b) >= LoadPoints
}
