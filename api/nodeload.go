package api

import (
	"encoding/json"
	"time"

	"jettison/stats"
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
	// AgentVersion is the version of the agent. Empty: the bridge is older than this field, and the
	// fields below are unknown.
	AgentVersion string `json:"agentVersion,omitempty"`
	DryRun       bool   `json:"dryRun,omitempty"`
	// Nearest is the threshold with the least headroom; nil: no signal with a threshold is observed.
	Nearest *NearestThreshold `json:"nearest,omitempty"`
	// LastEviction is the last eviction with a known outcome; nil: none since the agent started.
	LastEviction *LastEviction `json:"lastEviction,omitempty"`
}

// NearestThreshold is the threshold that a node is nearest to, and how near.
type NearestThreshold struct {
	Signal    stats.Signal `json:"signal"`
	Threshold string       `json:"threshold"` // memory.available<100Mi
	// HeadroomPercent is the distance to the threshold in percent of the signal's capacity, and for a
	// pressure signal in percent of time. It is negative while the threshold is met.
	HeadroomPercent float64 `json:"headroomPercent"`
}

// LastEviction is the start of an eviction, and its signal.
type LastEviction struct {
	Time   time.Time    `json:"time"`
	Signal stats.Signal `json:"signal"`
}

// Annotation returns the value of LoadAnnotation.
func (l *NodeLoad) Annotation() string {
	text, _ := json.Marshal(l) // numbers and a time: cannot fail
	return string(text)
}
