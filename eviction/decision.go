package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// Decision is what a step made of one look. Its slices are valid until the next step, and
// candidates point into the step's Summary; what evictions point to is theirs, once they have
// words.
type Decision struct {
	Time time.Time
	// Conditions of the node that are true now, sorted. The slice must not be changed.
	Conditions []Condition
	// Met are the thresholds that are met, whatever their grace periods, most urgent first.
	Met []Met
	// Reclaim is to be carried out before pods are evicted for the signals it is for, in this order.
	// Then the caller looks again and calls Reclaimed.
	Reclaim []Wish
	// Evictions are to be carried out now: any number for pods that exceed their own limits on local
	// storage, or at most one for a threshold.
	Evictions []Eviction
	// Ranking is the order among those who may be evicted for Signal, first victim first; only where a
	// threshold asks for a victim.
	Ranking []Ranked
	// Protected are the pods that are never victims, with the reason.
	Protected []Candidate
	// Signal is the threshold that asks for a victim. Its zero value: none does.
	Signal Met
	// Reason says in words why the victim is the victim, or why there is none although a threshold
	// asks for one.
	Reason string
	// Stopped: the breaker holds back evictions that did not help.
	Stopped bool
	// Unexplained: what pods hold does not explain what a disk is short of, so that no pod goes for it
	// yet.
	Unexplained bool
}

// Met is a threshold that is met.
type Met struct {
	Threshold Threshold
	Observed  stats.Observation
	Limit     uint64            // the threshold's value for the observed capacity
	Since     time.Time         // first observed so, without a break since
	First     stats.Observation // what was observed then
	// Due: its grace period is over, and it was observed anew.
	Due bool
}

// Disk: pods take what is short by files, of which they are measured now and then.
func (m Met) Disk() bool { return signals[m.Threshold.Signal].kind.disk() }

// ObservedText is what was observed as the kubelet's messages write it: 50Mi.
func (m Met) ObservedText() string {
	return amountText(signals[m.Threshold.Signal].kind, m.Observed.Value)
}

// LimitText is the threshold's value likewise.
func (m Met) LimitText() string { return limitText(&m.Threshold, m.Limit) }

// Reclaimable is what can be given back without evicting a pod.
type Reclaimable string

// The kubelet's ways for disks, in the order in which it goes them.
const (
	ReclaimContainers Reclaimable = "containers" // departed ones, with their logs and sandboxes
	ReclaimImages     Reclaimable = "images"     // unused ones
)

// Wish is something to reclaim before pods are evicted.
type Wish struct {
	What    Reclaimable
	Signals []stats.Signal // that it is for, and by which it is judged
}

// Eviction is one pod that is to be evicted. It holds nothing of the Summary.
type Eviction struct {
	Pod    stats.PodStats // a copy
	Signal stats.Signal
	// GracePeriodSeconds is at least 1, as the kubelet ends up with (pkg/kubelet/pod_workers.go
	// calculateEffectiveGracePeriod).
	GracePeriodSeconds int64
	// "Evicted": of the pod's status, whose phase becomes Failed, and of the event of type Warning
	Reason  string
	Message string
	// Annotations of the event; nil: none.
	Annotations map[string]string
	// Disruption: the pod gets the condition DisruptionTarget with DisruptionReason and the message.
	// Only evictions for a threshold do.
	Disruption bool
	// Hastens: the pod is being evicted already, gently, and now has to go at once.
	Hastens bool
	// Returns is what its end is expected to return, in the signal's unit, for pressure of memory in
	// bytes; 0: unknown, as for io and cpu.
	Returns uint64

	kind kind
	hard bool
}

// Local: the pod is evicted for limits of its own.
func (e *Eviction) Local() bool {
	return e.Signal == SignalEmptyDirFsLimit || e.Signal == SignalEphemeralPodFsLimit ||
		e.Signal == SignalEphemeralContainerFsLimit
}

// Disk: its end gives files back, which takes more than the end of its processes.
func (e *Eviction) Disk() bool { return e.kind.disk() || e.Local() }

// Urgent: a hard threshold of what only processes take asks for it, so that every millisecond
// counts.
func (e *Eviction) Urgent() bool { return e.hard && !e.Disk() }

// TakesMemory reports whether page cache that its victim leaves behind matters: it is for memory,
// for a disk, whose pages are memory, or for a critical pod, which is about to use the memory that
// it asked for, or for none, when nothing waits for it.
func (e *Eviction) TakesMemory() bool {
	return e.Disk() || e.Planned() || e.kind == kindMemory || e.kind == kindSwap ||
		e.kind == kindMemoryPressure
}

// Hard: a threshold that waits for nothing asks for it.
func (e *Eviction) Hard() bool { return e.hard }

// Names in a pod's status and events (kubelet pkg/kubelet/eviction, k8s.io/api/core/v1).
const (
	ReasonEvicted       = "Evicted"
	ConditionDisruption = "DisruptionTarget"
	DisruptionReason    = "TerminationByKubelet"
	// EventThresholdMet is a node event of type Warning, with the message AttemptingToReclaim.
	EventThresholdMet = "EvictionThresholdMet"
)

// AttemptingToReclaim is the message of the node event EventThresholdMet.
func (m Met) AttemptingToReclaim() string {
	return "Attempting to reclaim " + string(signals[m.Threshold.Signal].resource)
}

// Ranked is a candidate in its place.
type Ranked struct {
	Candidate
	// DecidedBy is the key by which the one before comes first; empty for the first.
	DecidedBy string
}

// Explain says in one line why the candidate stands where it stands.
func (c Candidate) Explain() string {
	var parts []string
	k, say := &c.Keys, func(format string, args ...any) {
		parts = append(parts, fmt.Sprintf(format, args...))
	}
	if k.Dying {
		say("being evicted already")
	}
	if k.SetAside {
		say("set aside: it was killed and did not die")
	}
	if k.Returned > 0 {
		say("was evicted before, %d times", k.Returned)
	}
	c.explainUsage(say)
	if k.Unnamed > 0 {
		say("of it %s in files without a name", amountText(k.kind, k.Unnamed))
	}
	if k.Release.OK {
		say("its end returns %s", amountText(releaseKind(k.kind), k.Release.V))
	}
	if k.Priority.OK && k.Priority.V != 0 {
		say("priority %d", k.Priority.V)
	}
	if k.QOSClass != "" {
		say("%s", k.QOSClass)
	}
	if !c.Pod.Announced {
		say("not announced by the runtime")
	}
	return strings.Join(parts, ", ")
}

// releaseKind is what a pod's end returns is counted in.
func releaseKind(k kind) kind {
	if k.pressure() {
		return kindMemory
	}
	return k
}

func (c Candidate) explainUsage(say func(string, ...any)) {
	k := &c.Keys
	kind := releaseKind(k.kind) // a pressure signal is a share of time, but pods use bytes
	usage := amountText(kind, k.Usage)
	if k.AtLeast {
		usage = "at least " + usage
	}
	switch {
	case !k.Measured:
		say("not measured")
	case k.kind == kindIOPressure:
		say("reads and writes %s a second more than before, beyond its share", bytesQuantity(k.Usage))
	case k.kind == kindCPUPressure:
		say("uses %.1f cores more than before, beyond its share", float64(k.Usage)/float64(time.Second))
	case !k.Requests || k.kind == kindInodes:
		say("uses %s", usage)
	case k.Refused:
		say("uses %s, counts as over its request: the runtime's status of it is too large", usage)
	case !k.Request.OK:
		say("uses %s, request unknown", usage)
	default:
		say("uses %s, %s", usage, k.requestText(kind))
	}
}

// requestText says how a pod stands to its request, by the bound that tells it.
func (k *Keys) requestText(kind kind) string {
	least, most := k.Request.V.Min, k.Request.V.Max
	exact := least == most
	switch standing := k.standing(); {
	case standing == overRequest && exact:
		return "over its request of " + amountText(kind, most)
	case standing == overRequest:
		return fmt.Sprintf("over its request of at most %dMi", most>>20)
	case standing == withinRequest && exact:
		return "within its request of " + amountText(kind, most)
	case standing == withinRequest:
		return fmt.Sprintf("within its request of at least %dMi", least>>20)
	}
	return fmt.Sprintf("its request is %dMi to %dMi", least>>20, most>>20)
}

// clonePod is a pod that outlives the Summary it was in. What only its object knows is filled in.
func clonePod(p *stats.PodStats, object *Pod) stats.PodStats {
	out := *p
	out.SandboxIDs = slices.Clone(p.SandboxIDs)
	out.Annotations = maps.Clone(p.Annotations)
	out.Containers = slices.Clone(p.Containers)
	out.EphemeralStorage.Volumes = slices.Clone(p.EphemeralStorage.Volumes)
	if object != nil {
		if out.PodRef.Name == "" {
			out.PodRef = object.Ref
		}
		if out.QOSClass == "" {
			out.QOSClass = object.qos
		}
	}
	return out
}
