package eviction

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"jettison/stats"
)

// Annotations of pods. kubernetes.io ones are the kubelet's (pkg/kubelet/types/pod_update.go).
// jettison/* ones count only in the namespaces that the configuration allows: otherwise a tenant
// could make itself immune.
const (
	annotationConfigSource  = "kubernetes.io/config.source"
	annotationConfigMirror  = "kubernetes.io/config.mirror"
	annotationPriority      = "jettison/priority"
	annotationMemoryRequest = "jettison/memory-request"
	annotationNeverEvict    = "jettison/never-evict"
)

// systemCriticalPriority is the lowest priority of critical pods (pkg/apis/scheduling/types.go
// SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// Policy is the configured part of the ranking: which pods are protected, and the order of the
// others.
type Policy struct {
	AnnotationNamespaces []string // jettison/* annotations count in these
	ProtectedNamespaces  []string // pods in these are never victims while their priority is unknown
	// ByRelease compares pods by the amount that killing them returns before it compares usage minus
	// request. Being over the request, and priority, still come first.
	ByRelease bool

	// texts of protections, so that each is allocated once; nil: not cached
	texts map[protection]string
}

// protection is a reason for protection that contains a detail of the pod.
type protection struct {
	kind, detail string
	priority     int32
}

// maxTexts bounds the number of cached texts.
const maxTexts = 256

func (p *Policy) protectionText(of protection) string {
	if text, ok := p.texts[of]; ok {
		return text
	}
	var text string
	switch of.kind {
	case "static":
		text = "static pod (source " + of.detail + ")"
	case "class":
		text = "critical pod (class " + of.detail + ")"
	case "critical":
		text = "critical pod (priority " + strconv.Itoa(int(of.priority)) + ")"
	default:
		text = "namespace " + of.detail + " is protected and the pod's priority is unknown"
	}
	if p.texts != nil && len(p.texts) < maxTexts {
		p.texts[of] = text
	}
	return text
}

// Candidate is a pod with its keys in the ranking. Pod and Object are valid until the Summary of
// the step is overwritten.
type Candidate struct {
	Pod    *stats.PodStats // never nil
	Object *Pod            // nil: unknown
	// Protected is the reason why the pod is never a victim; empty if it may be one.
	Protected string
	Unseen    bool // the Summary does not contain the pod
	Keys      Keys
}

// Keys are compared in this order to rank candidates.
type Keys struct {
	SetAside bool // the pod survived a kill: ranked last
	Measured bool // the pod's usage is known
	// the pod is in the grace period of an eviction; first if that is for the same resource, or if it
	// ends the shortage
	Dying    bool
	Requests bool   // requests count for this signal
	Usage    uint64 // in the signal's unit; for a pressure signal, its part in the pressure
	Unnamed  uint64 // part of Usage in files without a name
	AtLeast  bool   // Usage is a lower bound, and is compared as that value
	// Estimate is the possible usage of a suspected pod, by its writes since the disk was quiet; 0:
	// Usage counts
	Estimate uint64
	// Request in the signal's unit; its bounds differ if it is not known exactly.
	Request stats.Opt[stats.Range]
	// the runtime does not confirm the upper bound of Request, because it did not report all of the
	// pod, or the pod's object requests more without an allocation
	Open bool
	// the pod itself caused Request to be unknown: stats.PodStats.StatusRefused
	Refused      bool
	Priority     stats.Opt[int32]  // absent: unknown, which counts as 0
	Release      stats.Opt[uint64] // amount that killing the pod returns; only with Policy.ByRelease
	QOSClass     stats.QOSClass
	Start        time.Time
	TimesEvicted int // earlier evictions of a pod with this UID

	kind      kind
	suspicion suspicion // set only for a disk's shortage that measurements do not explain
	eases     bool      // the pod's current eviction returns the resource that is short, or ends the shortage
}

// annotation returns an annotation of a pod: its object's value, or else the runtime's. A pod that
// the runtime reports as static or mirror counts as such even if its object disagrees. Otherwise
// only an object from a manifest can mark it so (NewPod).
func (c *Candidate) annotation(key string) (string, bool) {
	fromRuntime, found := c.Pod.Annotations[key]
	if found && strings.HasPrefix(key, "kubernetes.io/") && fromRuntime != "api" || c.Object == nil {
		return fromRuntime, found
	}
	if v, ok := c.Object.annotations[key]; ok {
		return v, true
	}
	return fromRuntime, found
}

// namespace returns the pod's namespace as reported by the runtime, or its object's if only the
// kernel knows the pod; empty if unknown.
func (c *Candidate) namespace() string {
	if c.Pod.PodRef.Namespace == "" && c.Object != nil {
		return c.Object.Ref.Namespace
	}
	return c.Pod.PodRef.Namespace
}

// ownAnnotation returns the value of a jettison/* annotation, where these count.
func (p *Policy) ownAnnotation(c *Candidate, key string) string {
	if !slices.Contains(p.AnnotationNamespaces, c.namespace()) || !c.Pod.Announced && c.Object == nil {
		return ""
	}
	v, _ := c.annotation(key)
	return v
}

// candidate returns a candidate without its usage.
func (p *Policy) candidate(pod *stats.PodStats, object *Pod) Candidate {
	c := Candidate{Pod: pod, Object: object}
	if object != nil && object.priority.OK {
		c.Keys.Priority = object.priority
		// parsing an empty text would allocate an error for every pod
	} else if text := p.ownAnnotation(&c, annotationPriority); text != "" {
		if v, err := strconv.ParseInt(text, 10, 32); err == nil {
			c.Keys.Priority = stats.Some(int32(v))
		}
	}
	c.Keys.QOSClass, c.Keys.Start = pod.QOSClass, pod.StartTime
	if c.Keys.QOSClass == "" && object != nil {
		c.Keys.QOSClass = object.qos
	}
	c.Protected = p.protected(&c)
	return c
}

// PriorityAndProtection returns a pod's priority, if known, and why the pod is never a victim;
// empty if it may be a victim. object may be nil.
func (p *Policy) PriorityAndProtection(pod *stats.PodStats, object *Pod) (priority stats.Opt[int32],
	protected string) {
	if object != nil && !object.belongsTo(pod) {
		object = nil
	}
	c := p.candidate(pod, object)
	return c.Keys.Priority, c.Protected
}

// protected returns the first reason that applies, most certain first.
func (p *Policy) protected(c *Candidate) string {
	pod, priority := c.Pod, c.Keys.Priority
	source, hasSource := c.annotation(annotationConfigSource)
	_, mirror := c.annotation(annotationConfigMirror)
	switch {
	case pod.Self:
		return "the agent runs in this pod"
	case hasSource && source != "api":
		return p.protectionText(protection{kind: "static", detail: source})
	case mirror:
		return "mirror pod"
	case priority.OK && priority.V >= systemCriticalPriority:
		return p.protectionText(protection{kind: "critical", priority: priority.V})
	case !priority.OK && pod.NodeCritical:
		return "critical pod (oom_score_adj -997)"
	case c.Object != nil && c.Object.class != "":
		return p.protectionText(protection{kind: "class", detail: c.Object.class})
	case p.ownAnnotation(c, annotationNeverEvict) == "true":
		return "annotated " + annotationNeverEvict
	case !pod.Announced && staticUID(pod.PodRef.UID): // no client can provide such a UID
		return "static pod (its UID is a hash)"
	case !priority.OK && slices.Contains(p.ProtectedNamespaces, c.namespace()):
		return p.protectionText(protection{kind: "namespace", detail: c.namespace()})
	}
	return ""
}

// memoryRequest returns the request of the pod's object, of the annotation, or of the Summary, on a
// node with the given memory. A pod in a cgroup of class BestEffort has no request, even if its
// object has one.
func (p *Policy) memoryRequest(c *Candidate, capacity stats.Opt[uint64]) stats.Opt[stats.Range] {
	if c.Object != nil {
		if c.Pod.QOSClass == stats.BestEffort {
			return stats.Some(stats.Range{})
		}
		return stats.Some(c.Object.requestOf(c.Pod, capacity))
	}
	if text := p.ownAnnotation(c, annotationMemoryRequest); text != "" {
		if q, err := parseQuantity(text); err == nil && q.Sign() >= 0 && bytes(q) <= atMost(capacity) {
			return stats.Some(stats.ExactRange(bytes(q)))
		}
	}
	return c.Pod.MemoryRequest
}

// requestOf returns the memory request of a pod with this object, on a node with the given memory.
// The kubelet's allocation is exact. Without one, the spec may be a resize that the kubelet defers
// or rejects, or a wrong value of a client. It is exact up to the runtime's upper bound. Above that
// bound the request is between the runtime's lower bound and the spec, because the runtime keeps
// the old request after a resize (stats/read/podindex, request.go). The pod's memory limit and the
// node's memory bound the spec.
func (p *Pod) requestOf(pod *stats.PodStats, capacity stats.Opt[uint64]) stats.Range {
	if p.allocated {
		return stats.ExactRange(min(p.memoryRequest, atMost(capacity)))
	}
	return boundedRequest(p.limitedRequest(pod), pod.MemoryRequest, capacity)
}

// limitedRequest returns the memory request of the spec, up to the pod's memory limit.
func (p *Pod) limitedRequest(pod *stats.PodStats) uint64 {
	return min(p.memoryRequest, atMost(pod.Memory.LimitBytes))
}

// ExceedsRuntime reports whether the memory request has no allocation and exceeds the runtime's upper
// bound.
func (p *Pod) ExceedsRuntime(pod *stats.PodStats) bool {
	return !p.allocated && pod.MemoryRequest.OK && p.limitedRequest(pod) > pod.MemoryRequest.V.Max
}

// boundedRequest returns the bounds of a request without an allocation. shown are the runtime's
// bounds. A kubelet allocates no request above the capacity.
func boundedRequest(request uint64, shown stats.Opt[stats.Range],
	capacity stats.Opt[uint64]) stats.Range {
	most := atMost(capacity)
	if request <= most && (!shown.OK || request <= shown.V.Max) {
		return stats.ExactRange(request)
	}
	return stats.Range{Min: shown.V.Min, Max: min(request, most)}
}

// atMost returns a value as an upper bound; unknown: none.
func atMost(v stats.Opt[uint64]) uint64 {
	if !v.OK {
		return math.MaxUint64
	}
	return v.V
}

// staticUID reports whether a UID is that of a static pod, 32 hexadecimal digits
// (pkg/kubelet/config/common.go applyDefaults), and not a UUID.
func staticUID(uid string) bool {
	if len(uid) != 32 {
		return false
	}
	for _, c := range []byte(uid) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
