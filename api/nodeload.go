package api

import (
	"encoding/json"
	"time"
)

// LoadAnnotation is the annotation of a node's Lease that holds its NodeLoad as JSON.
const LoadAnnotation = "jettison/load"

// NodeLoad summarizes the load of a node for programs that move pods between nodes. Nil fields are
// unknown.
type NodeLoad struct {
	Time                time.Time `json:"time"` // when the agent read it
	MemoryCapacityBytes *uint64   `json:"memoryCapacityBytes,omitempty"`
	WorkingSetBytes     *uint64   `json:"workingSetBytes,omitempty"` // the kubelet's
	WorkingSetPercent   *float64  `json:"workingSetPercent,omitempty"`
	// HeadroomBytes is memory.available minus the highest of its thresholds, soft ones included. It
	// is negative while that threshold is met.
	HeadroomBytes   *int64   `json:"headroomBytes,omitempty"`
	HeadroomPercent *float64 `json:"headroomPercent,omitempty"` // of the capacity
	// Pressure is the share of the last minute, in percent, in which some tasks stalled, or all
	// (full), by resource: memoryFull.
	Pressure map[string]float64 `json:"pressurePercent,omitempty"`
}

// Annotation returns the value of LoadAnnotation.
func (l *NodeLoad) Annotation() string {
	text, _ := json.Marshal(l) // numbers and a time: cannot fail
	return string(text)
}
