package eviction

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// Met is a threshold that is met.
type Met struct {
	Threshold Threshold
	Observed  stats.Observation
	Limit     uint64    // the threshold's value for the observed capacity
	Since     time.Time // first observed so, without a break since
}

// Decision is what Step made of one look.
type Decision struct {
	Time    time.Time
	Met     []Met
	Ranking []Ranked // first victim first; only where a threshold is met
	// Protected are the pods that are never victims, with the reason.
	Protected []Candidate
	// Victim indexes Ranking; -1: nobody is to be evicted now, and Reason says why, if a threshold is met.
	Victim int
	Signal Met // the threshold that asks for the victim
	Reason string
}

// Ranked is a candidate in its place.
type Ranked struct {
	Candidate
	// DecidedBy is the key by which the one before comes first; empty for the first.
	DecidedBy string
}

// Message is the kubelet's status message for an eviction (pkg/kubelet/eviction/helpers.go nodeLowMessageFmt and
// thresholdMetMessageFmt).
func (d Decision) Message() string {
	if len(d.Met) == 0 {
		return ""
	}
	return fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %s, available: %s. ",
		"memory", bytesQuantity(d.Signal.Limit), bytesQuantity(d.Signal.Observed.Available))
}

// bytesQuantity writes bytes as the kubelet does in messages.
func bytesQuantity(v uint64) string {
	return resource.NewQuantity(int64(v), resource.BinarySI).String()
}

// Explain says in one line why the candidate stands where it stands.
func (r Ranked) Explain() string {
	var parts []string
	p := r.Pod
	if r.SetAside {
		parts = append(parts, "set aside: it was killed and did not die")
	}
	switch {
	case !r.measured():
		parts = append(parts, "not measured")
	case !p.MemoryRequest.OK:
		parts = append(parts, fmt.Sprintf("uses %s, request unknown", bytesQuantity(p.Memory.WorkingSetBytes.V)))
	default:
		verb := "within"
		if r.overRequest() == 0 {
			verb = "over"
		}
		request := bytesQuantity(p.MemoryRequest.V.Max)
		if p.MemoryRequest.V.Min != p.MemoryRequest.V.Max { // known to a thousandth of the capacity
			request = fmt.Sprintf("about %dMi", p.MemoryRequest.V.Max>>20)
		}
		parts = append(parts, fmt.Sprintf("uses %s, %s its request of %s", bytesQuantity(p.Memory.WorkingSetBytes.V), verb, request))
	}
	if r.Priority.OK {
		parts = append(parts, fmt.Sprintf("priority %d", r.Priority.V))
	}
	if p.QOSClass != "" {
		parts = append(parts, string(p.QOSClass))
	}
	if !p.Announced {
		parts = append(parts, "not announced by the runtime")
	}
	return strings.Join(parts, ", ")
}
