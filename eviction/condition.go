package eviction

import (
	"slices"
	"time"
)

// Condition is a condition of the node that thresholds raise.
type Condition string

// The conditions. The last two are this project's own, for pressures without a condition in the
// kubelet.
const (
	MemoryPressure Condition = "MemoryPressure"
	DiskPressure   Condition = "DiskPressure"
	PIDPressure    Condition = "PIDPressure"
	IOPressure     Condition = "IOPressure"
	CPUPressure    Condition = "CPUPressure"
)

// Conditions lists all conditions, sorted.
var Conditions = []Condition{CPUPressure, DiskPressure, IOPressure, MemoryPressure, PIDPressure}

// conditionSets contains all sets of conditions, sorted, by the bits of their indices, so that a
// new condition costs no allocation.
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

// conditionWords contains a condition's reasons in the node's status (kubelet
// pkg/kubelet/nodestatus/setters.go), for true and for false, then the reasons of its node events
// for both.
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

// Reason returns the condition's reason in the node's status while it is true, or false.
func (c Condition) Reason(status bool) string {
	if status {
		return conditionWords[c][0]
	}
	return conditionWords[c][1]
}

// Event returns the reason of the node event, of type Normal, when the condition becomes true, or
// false.
func (c Condition) Event(status bool) string {
	if status {
		return conditionWords[c][2]
	}
	return conditionWords[c][3]
}

// Condition returns the condition that the threshold raises.
func (m Met) Condition() Condition { return signals[m.Threshold.Signal].condition }

// conditions stores which conditions are true, and when each condition was last observed to be
// true.
type conditions struct {
	at      [5]time.Time // last observed to be true, by the index in Conditions; zero: never
	current []Condition  // as last reported
	bits    uint8        // the same, as bits
}

// update returns the conditions that are true:
//
//   - those with a threshold that is met, even a soft one in its grace period;
//   - those observed to be true within the transition period;
//   - those that were true when their signal was last observed, if it is not observed now. The
//     kubelet's conditions also stay unchanged while its summary fails.
//
// With a transition period of 0 the kubelet reports no condition at all (weakness 24).
func (cs *conditions) update(now time.Time, all []watched, period time.Duration) []Condition {
	var held uint8
	for i := range all {
		w := &all[i]
		bit := w.info.condition.index()
		if w.met {
			cs.at[bit], w.lastMet = now, now
		}
		recently := !w.lastMet.IsZero() && w.lastObserved.Sub(w.lastMet) < period
		if w.met || !w.observed.OK && (!w.metSince.IsZero() || recently) {
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
		cs.bits, cs.current = held, conditionSets[held]
	}
	return cs.current
}
