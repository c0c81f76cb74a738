package eviction

import (
	"slices"
	"time"
)

// Condition is a condition of the node that thresholds raise.
type Condition string

// The conditions. The last two are this project's own, for pressure on what no kubelet has a
// condition for.
const (
	MemoryPressure Condition = "MemoryPressure"
	DiskPressure   Condition = "DiskPressure"
	PIDPressure    Condition = "PIDPressure"
	IOPressure     Condition = "IOPressure"
	CPUPressure    Condition = "CPUPressure"
)

// Conditions are all of them, sorted.
var Conditions = []Condition{CPUPressure, DiskPressure, IOPressure, MemoryPressure, PIDPressure}

// conditionSets are all sets of them, sorted, by the bits of their indices: a condition that begins
// costs no allocation.
var conditionSets = func() (sets [1 << 5][]Condition) {
	for bits := range sets {
		for i, c := range Conditions {
			if bits&(1<<i) != 0 {
				sets[bits] = append(sets[bits], c)
			}
		}
	}
	return sets
}()

func (c Condition) index() int { return slices.Index(Conditions, c) }

// conditionWords are a condition's reasons in the node's status (kubelet
// pkg/kubelet/nodestatus/setters.go), true and false, and its node events, likewise.
var conditionWords = map[Condition][4]string{
	MemoryPressure: {"KubeletHasInsufficientMemory", "KubeletHasSufficientMemory",
		"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	DiskPressure: {"KubeletHasDiskPressure", "KubeletHasNoDiskPressure", "NodeHasDiskPressure",
		"NodeHasNoDiskPressure"},
	PIDPressure: {"KubeletHasInsufficientPID", "KubeletHasSufficientPID", "NodeHasInsufficientPID",
		"NodeHasSufficientPID"},
	IOPressure: {"JettisonHasIOPressure", "JettisonHasNoIOPressure", "NodeHasIOPressure",
		"NodeHasNoIOPressure"},
	CPUPressure: {"JettisonHasCPUPressure", "JettisonHasNoCPUPressure", "NodeHasCPUPressure",
		"NodeHasNoCPUPressure"},
}

// Reason is the condition's reason in the node's status while it is true, or false.
func (c Condition) Reason(status bool) string {
	if status {
		return conditionWords[c][0]
	}
	return conditionWords[c][1]
}

// Event is the reason of the node event, of type Normal, when the condition becomes true, or false.
func (c Condition) Event(status bool) string {
	if status {
		return conditionWords[c][2]
	}
	return conditionWords[c][3]
}

// Condition that the threshold raises.
func (m Met) Condition() Condition { return signals[m.Threshold.Signal].condition }

// conditions remembers which conditions are true, and since when each was observed.
type conditions struct {
	at   [5]time.Time // last observed, by the index in Conditions; zero: never
	held []Condition  // as last reported
	bits uint8        // the same, as bits
}

// hold finds the conditions that are true: those whose thresholds are met, even a soft one in its
// grace period; those observed within the transition period; and those that one which cannot be
// observed held when it was observed last, as the kubelet's stay as they are while its summary
// fails. With a transition period of 0 the kubelet reports none at all (weakness 24).
func (cs *conditions) hold(now time.Time, all []watched, period time.Duration) []Condition {
	var held uint8
	for i := range all {
		w := &all[i]
		bit := w.info.condition.index()
		if w.met {
			cs.at[bit], w.raised = now, now
		}
		lately := !w.raised.IsZero() && w.read.Sub(w.raised) < period
		if w.met || !w.observed.OK && (!w.since.IsZero() || lately) {
			held |= 1 << bit
		}
	}
	for bit, at := range cs.at {
		if now.Before(at) {
			cs.at[bit], at = now, now
		}
		if !at.IsZero() && now.Sub(at) < period {
			held |= 1 << bit
		}
	}
	if held != cs.bits {
		cs.bits, cs.held = held, conditionSets[held]
	}
	return cs.held
}
