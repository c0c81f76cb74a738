package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// Decision is the result of a step. Its slices are valid until the next step, and candidates point
// into the step's Summary. After AddTexts, or a step that is not terse, Evictions own their data.
type Decision struct {
	Time time.Time
	// Conditions of the node that are true now, sorted. The slice must not be changed.
	Conditions []Condition
	// Met lists the thresholds that are met, in or after their grace periods, most urgent first.
	Met []Met
	// Reclaim lists the reclaims to run, in this order, before pods are evicted for their signals.
	// The caller then looks again and calls StepAfterReclaim.
	Reclaim []ReclaimRequest
	// Evictions lists the evictions to carry out now: any number for pods over their own limits on
	// local storage, or at most one for a threshold.
	Evictions []Eviction
	// Ranking is the order of the candidates for Signal, first victim first. It is set only if a
	// threshold asks for a victim.
	Ranking []Ranked
	// Protected lists the pods that are never victims, with the reason.
	Protected []Candidate
	// Signal is the threshold that asks for a victim; zero if none does.
	Signal Met
	// Reason explains the choice of the victim, or why no pod is evicted although a threshold asks
	// for one.
	Reason string
	// BreakerOpen reports that the breaker is open.
	BreakerOpen bool
	// Unexplained reports that pods do not explain a disk's shortage, so that no pod is evicted for
	// it yet.
	Unexplained bool
}

// Met is a threshold that is met.
type Met struct {
	Threshold Threshold
	Observed  stats.Observation
	Limit     uint64            // the threshold's value for the observed capacity
	Since     time.Time         // met without a break since then
	First     stats.Observation // observation at that time
	// Due reports that the grace period is over and that the signal was observed again.
	Due bool
}

// Disk reports whether files use up the resource. Pods' disk usage is measured rarely.
func (m Met) Disk() bool { return signals[m.Threshold.Signal].kind.disk() }

// ObservedText returns the observed value as in the kubelet's messages: 50Mi.
func (m Met) ObservedText() string {
	return amountText(signals[m.Threshold.Signal].kind, m.Observed.Value)
}

// LimitText returns the threshold's value in the same form.
func (m Met) LimitText() string { return limitText(&m.Threshold, m.Limit) }

// Reclaimable is something that can be reclaimed without evicting a pod.
type Reclaimable string

// The kinds that the kubelet reclaims for disks, in its order.
const (
	ReclaimContainers Reclaimable = "containers" // exited containers, with their logs and sandboxes
	ReclaimImages     Reclaimable = "images"     // unused images
)

// ReclaimRequest is something to reclaim before pods are evicted.
type ReclaimRequest struct {
	What    Reclaimable
	Signals []stats.Signal // the reclaim is enough when these signals have recovered
}

// Eviction is one pod to evict. It shares no memory with the Summary, except in a terse Decision
// (AddTexts).
type Eviction struct {
	Pod    stats.PodStats // a copy
	Signal stats.Signal
	// GracePeriodSeconds is at least 1, like the kubelet's result (pkg/kubelet/pod_workers.go
	// calculateEffectiveGracePeriod).
	GracePeriodSeconds int64
	// "Evicted" in the pod's status, whose phase becomes Failed, and in the event of type Warning
	Reason  string
	Message string
	// Annotations of the event; may be nil.
	Annotations map[string]string
	// Disruption reports that the pod gets the condition DisruptionTarget with DisruptionReason and
	// the message. It is set only for evictions for a threshold.
	Disruption bool
	// CutsGracePeriod reports that the pod is already in the grace period of an eviction and must now
	// be killed.
	CutsGracePeriod bool
	// Returns is the amount that the eviction is expected to return, in the signal's unit, or in
	// bytes for memory pressure; 0 if unknown, as for io and cpu pressure.
	Returns uint64

	kind      kind
	hard      bool
	suspected bool // measurements do not explain the disk's shortage
}

// Local reports whether the pod is evicted for its own limits.
func (e *Eviction) Local() bool {
	return e.Signal == SignalEmptyDirFsLimit || e.Signal == SignalEphemeralPodFsLimit ||
		e.Signal == SignalEphemeralContainerFsLimit
}

// Disk reports whether the eviction is to free disk space, which takes longer than the end of its
// processes.
func (e *Eviction) Disk() bool { return e.kind.disk() || e.Local() }

// Urgent reports whether the eviction is for a hard threshold of a resource that processes use up.
// Then every millisecond counts.
func (e *Eviction) Urgent() bool { return e.hard && !e.Disk() }

// PageCacheMatters reports whether the page cache that the victim leaves is to be dropped. It is
// for memory, for a disk, because its cached files use memory, and for a critical pod, which is
// about to use the memory that it requested. It is also for a descheduled pod, because nothing
// waits for that eviction.
func (e *Eviction) PageCacheMatters() bool {
	return e.Disk() || e.Planned() || e.kind == kindMemory || e.kind == kindSwap ||
		e.kind == kindMemoryPressure
}

// Hard reports whether the eviction is for a hard threshold.
func (e *Eviction) Hard() bool { return e.hard }

// Names in a pod's status and events (kubelet pkg/kubelet/eviction, k8s.io/api/core/v1).
const (
	ReasonEvicted       = "Evicted"
	ConditionDisruption = "DisruptionTarget"
	DisruptionReason    = "TerminationByKubelet"
	// EventThresholdMet is a node event of type Warning, with the message AttemptingToReclaim.
	EventThresholdMet = "EvictionThresholdMet"
)

// AttemptingToReclaim returns the message of the node event EventThresholdMet.
func (m Met) AttemptingToReclaim() string {
	return "Attempting to reclaim " + string(signals[m.Threshold.Signal].resource)
}

// Ranked is a candidate with its place in the ranking.
type Ranked struct {
	Candidate
	// DecidedBy is the key that puts the previous candidate first; empty for the first candidate.
	DecidedBy string
}

// Explain returns one line with the facts that determine the candidate's place in the ranking.
func (c Candidate) Explain() string {
	var parts []string
	k, add := &c.Keys, func(format string, args ...any) {
		parts = append(parts, fmt.Sprintf(format, args...))
	}
	if k.Dying {
		add("being evicted already")
	}
	if k.SetAside {
		add("set aside: survived its kill")
	}
	if k.TimesEvicted > 0 {
		add("evicted %d times before", k.TimesEvicted)
	}
	c.explainUsage(add)
	if k.Unnamed > 0 {
		add("%s of that in files without a name", amountText(k.kind, k.Unnamed))
	}
	switch {
	case k.Estimate > k.Usage:
		add("may use %s by what it has written", amountText(k.kind, k.Estimate))
	case k.suspicion.unknown:
		add("growth unknown")
	case k.suspicion.idle && !k.suspicion.serious():
		add("growth too small to explain the shortage")
	case k.suspicion != suspicion{} && k.suspicion.part == 0:
		add("wrote too little to explain the shortage")
	}
	if k.Release.OK {
		add("killing it returns %s", amountText(releaseKind(k.kind), k.Release.V))
	}
	if k.Priority.OK && k.Priority.V != 0 {
		add("priority %d", k.Priority.V)
	}
	if k.QOSClass != "" {
		add("%s", k.QOSClass)
	}
	if !c.Pod.Announced {
		add("not announced by the runtime")
	}
	return strings.Join(parts, ", ")
}

// releaseKind returns the kind in which a pod's return is counted.
func releaseKind(k kind) kind {
	if k.pressure() {
		return kindMemory
	}
	return k
}

func (c Candidate) explainUsage(add func(string, ...any)) {
	k := &c.Keys
	kind := releaseKind(k.kind) // a pressure signal is a share of time, but pods use bytes
	usage := amountText(kind, k.Usage)
	if k.AtLeast {
		usage = "at least " + usage
	}
	switch {
	case !k.Measured:
		add("not measured")
	case k.kind == kindIOPressure:
		add("reads and writes %s per second more than before, above its share", bytesQuantity(k.Usage))
	case k.kind == kindCPUPressure:
		add("uses %.1f cores more than before, above its share", float64(k.Usage)/float64(time.Second))
	case !k.Requests || k.kind == kindInodes:
		add("uses %s", usage)
	case k.Refused:
		add("uses %s, counts as over its request: its status in the runtime is too large", usage)
	case !k.Request.OK:
		add("uses %s, request unknown", usage)
	default:
		add("uses %s, %s", usage, k.requestText(kind))
	}
}

// requestText returns how a pod's usage compares with its request, by the bound that decides it.
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
	return fmt.Sprintf("request between %dMi and %dMi", least>>20, most>>20)
}

// clonePod returns a copy that outlives the Summary, with missing facts from the pod object.
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
