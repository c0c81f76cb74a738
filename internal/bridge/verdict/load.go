package verdict

import (
	"encoding/json"
	"math"
	"time"

	"jettison/api"
	"jettison/stats"
)

// LoadAnnotation of the Lease of the node's name has the Load, as JSON.
const LoadAnnotation = "jettison/load"

// When a load is written.
const (
	LoadPoints  = 10              // where a figure has moved by so many points,
	LoadSoonest = time.Minute     // not sooner after the last one,
	LoadLatest  = 5 * time.Minute // and after that in any case
)

// Load is what whoever moves pods between nodes wants to know of one. Shares are hundredths. A nil one is not known.
type Load struct {
	Time                time.Time `json:"time"` // of the agent's look
	MemoryCapacityBytes uint64    `json:"memoryCapacityBytes,omitempty"`
	WorkingSetBytes     uint64    `json:"workingSetBytes,omitempty"` // capacity without memory.available
	WorkingSetPercent   *float64  `json:"workingSetPercent,omitempty"`
	// HeadroomBytes is how far memory.available is above the highest of its thresholds, soft ones included; below zero: that one is met.
	HeadroomBytes   *int64   `json:"headroomBytes,omitempty"`
	HeadroomPercent *float64 `json:"headroomPercent,omitempty"` // of the capacity
	// Pressure is the share of time stalled.
	Pressure map[string]float64 `json:"pressurePercent,omitempty"`
}

// LoadOf is the load that a state tells. !ok: it tells nothing of memory.
func LoadOf(s *api.State) (l Load, ok bool) {
	for i := range s.Signals {
		g := &s.Signals[i]
		if !g.Observed {
			continue
		}
		switch g.Signal {
		case stats.SignalMemoryAvailable:
			l.memory(s.Time, g)
			ok = true
		case stats.SignalMemoryPressureFull, stats.SignalMemoryPressureSome, stats.SignalIOPressureFull, stats.SignalCPUPressureSome:
			if l.Pressure == nil {
				l.Pressure = map[string]float64{}
			}
			l.Pressure[string(g.Signal)] = round(float64(g.Available) / 1e4) // of millionths
		}
	}
	return l, ok
}

func (l *Load) memory(at time.Time, g *api.SignalState) {
	l.Time, l.MemoryCapacityBytes = at, g.Capacity
	if g.Capacity == 0 {
		return
	}
	l.WorkingSetBytes = g.Capacity - min(g.Available, g.Capacity)
	used := percent(float64(l.WorkingSetBytes), g.Capacity)
	l.WorkingSetPercent = &used
	var highest uint64
	for _, limit := range g.Limits {
		highest = max(highest, limit)
	}
	if highest > 0 {
		left := int64(g.Available) - int64(highest)
		share := percent(float64(left), g.Capacity)
		l.HeadroomBytes, l.HeadroomPercent = &left, &share
	}
}

func percent(part float64, whole uint64) float64 { return round(100 * part / float64(whole)) }

func round(v float64) float64 { return math.Round(10*v) / 10 }

// Annotation is the load as it is written.
func (l *Load) Annotation() string {
	text, _ := json.Marshal(l) // of numbers and a time
	return string(text)
}

// LoadDue tells that a load is to be written. was is what was written last, and at when; a nil one: nothing was.
func LoadDue(now time.Time, l, was *Load, at time.Time) bool {
	switch since := now.Sub(at); {
	case was == nil, since >= LoadLatest:
		return true
	case since < LoadSoonest:
		return false
	}
	if moved(l.WorkingSetPercent, was.WorkingSetPercent) || moved(l.HeadroomPercent, was.HeadroomPercent) {
		return true
	}
	for name, share := range l.Pressure {
		if math.Abs(share-was.Pressure[name]) >= LoadPoints {
			return true
		}
	}
	for name, share := range was.Pressure {
		if _, still := l.Pressure[name]; !still && share >= LoadPoints {
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
