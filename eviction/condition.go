package eviction

import "slices"

// Condition is a condition of the node that thresholds raise.
type Condition string

// The conditions. The last two are this project's own, for pressure on what no kubelet has a condition for.
const (
	MemoryPressure Condition = "MemoryPressure"
	DiskPressure   Condition = "DiskPressure"
	PIDPressure    Condition = "PIDPressure"
	IOPressure     Condition = "IOPressure"
	CPUPressure    Condition = "CPUPressure"
)

// Conditions are all of them, sorted.
var Conditions = []Condition{CPUPressure, DiskPressure, IOPressure, MemoryPressure, PIDPressure}

// conditionSets are all sets of them, sorted, by the bits of their indices: a condition that begins costs no allocation.
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

// conditionWords are a condition's reasons in the node's status (kubelet pkg/kubelet/nodestatus/setters.go), true and false, and its
// node events, likewise.
var conditionWords = map[Condition][4]string{
	MemoryPressure: {"KubeletHasInsufficientMemory", "KubeletHasSufficientMemory", "NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	DiskPressure:   {"KubeletHasDiskPressure", "KubeletHasNoDiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"},
	PIDPressure:    {"KubeletHasInsufficientPID", "KubeletHasSufficientPID", "NodeHasInsufficientPID", "NodeHasSufficientPID"},
	IOPressure:     {"JettisonHasIOPressure", "JettisonHasNoIOPressure", "NodeHasIOPressure", "NodeHasNoIOPressure"},
	CPUPressure:    {"JettisonHasCPUPressure", "JettisonHasNoCPUPressure", "NodeHasCPUPressure", "NodeHasNoCPUPressure"},
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
