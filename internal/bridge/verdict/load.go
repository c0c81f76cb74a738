package verdict

import (
	"encoding/json"
	"math"
	"slices"
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

// Load is what whoever moves pods between nodes wants to know of one. A nil one is not known.
type Load struct {
	Time                time.Time `json:"time"` // of the agent's look
	MemoryCapacityBytes *uint64   `json:"memoryCapacityBytes,omitempty"`
	WorkingSetBytes     *uint64   `json:"workingSetBytes,omitempty"` // the kubelet's
	WorkingSetPercent   *float64  `json:"workingSetPercent,omitempty"`
	// HeadroomBytes is how far memory.available is above the highest of its thresholds, soft ones included; below zero: that one is met.
	HeadroomBytes   *int64   `json:"headroomBytes,omitempty"`
	HeadroomPercent *float64 `json:"headroomPercent,omitempty"` // of the capacity
	// Pressure is the share of the last minute in which some tasks stalled, or all (full), in per cent, by resource: memoryFull.
	Pressure map[string]float64 `json:"pressurePercent,omitempty"`
}

// LoadOf is the load that a state tells. !ok: it tells none.
func LoadOf(s *api.State) (l Load, ok bool) {
	n := s.Load
	if n == nil {
		return l, false
	}
	l = Load{Time: n.Time, MemoryCapacityBytes: n.Memory.CapacityBytes, WorkingSetBytes: n.Memory.WorkingSetBytes}
	if l.MemoryCapacityBytes != nil && *l.MemoryCapacityBytes > 0 {
		whole := *l.MemoryCapacityBytes
		if l.WorkingSetBytes != nil {
			used := percent(float64(*l.WorkingSetBytes), whole)
			l.WorkingSetPercent = &used
		}
		l.headroom(s.Signals, whole)
	}
	l.Pressure = map[string]float64{}
	for name, p := range map[string]*api.PressureState{"cpu": n.Pressure.CPU, "memory": n.Pressure.Memory, "io": n.Pressure.IO} {
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
	return l, true
}

func (l *Load) headroom(signals []api.SignalState, whole uint64) {
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
