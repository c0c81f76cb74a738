package eviction

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"jettison/stats"
)

// Annotations of pods. kubernetes.io ones are the kubelet's (pkg/kubelet/types/pod_update.go);
// jettison/* count only in the namespaces that the configuration allows, or a tenant could make
// itself immune.
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

// Policy is what the configuration says about who may be evicted, and in which order.
type Policy struct {
	AnnotationNamespaces []string // where jettison/* annotations count
	ProtectedNamespaces  []string // never victims while their priority is unknown
	// ByRelease compares pods by what killing them would really return, not by usage above request.
	// Usage over request and priority still come first.
	ByRelease bool

	// of protections, so that each is allocated once; nil: they are not kept
	texts map[protection]string
}

// protection is a reason with something of the pod in it.
type protection struct {
	kind, of string
	priority int32
}

// maxTexts bounds the protections whose words are kept.
const maxTexts = 256

func (p *Policy) text(of protection) string {
	if text, ok := p.texts[of]; ok {
		return text
	}
	var text string
	switch of.kind {
	case "static":
		text = "static pod (source " + of.of + ")"
	case "class":
		text = "critical pod (class " + of.of + ")"
	case "critical":
		text = "critical pod (priority " + strconv.Itoa(int(of.priority)) + ")"
	default:
		text = "namespace " + of.of + " is protected and the pod's priority unknown"
	}
	if p.texts != nil && len(p.texts) < maxTexts {
		p.texts[of] = text
	}
	return text
}

// Candidate is a pod as the ranking sees it. Pod and Object are valid until the Summary of the step
// is written again.
type Candidate struct {
	Pod    *stats.PodStats // never nil
	Object *Pod            // nil: it is not known
	// Protected says in words why the pod is never a victim; empty: it may be one.
	Protected string
	Keys      Keys
}

// Keys are what a candidate was compared by, in the order in which they count.
type Keys struct {
	SetAside bool // it was killed and did not die: last
	Measured bool // what it uses is known
	// being evicted already, not at once: if for the same, or it is all that is short, it goes first
	Dying    bool
	Requests bool   // for this signal requests count
	Usage    uint64 // in the signal's unit; of a pressure signal, what it caused
	Unnamed  uint64 // of that, in files without a name
	AtLeast  bool   // Usage is a lower bound: it counts as that figure
	// Request in the signal's unit; its bounds are apart where it is not known exactly.
	Request stats.Opt[stats.Range]
	// Request has no upper bound below all of the node's memory: not all of the pod was seen
	Open bool
	// Request is unknown by the pod's own doing: stats.PodStats.StatusRefused
	Refused  bool
	Priority stats.Opt[int32]  // absent: unknown, which counts as 0
	Release  stats.Opt[uint64] // what killing it would return; only where the policy asks for it
	QOSClass stats.QOSClass
	Start    time.Time
	Returned int // how often a pod of this UID was evicted before

	kind  kind
	eases bool // what it is being evicted for is what is short here
}

// annotation of a pod: its object's word, else the runtime's. A pod that the runtime calls static
// or a mirror is one, whatever its object says; else only a manifest's object says so (NewPod).
func (c *Candidate) annotation(key string) (string, bool) {
	said, told := c.Pod.Annotations[key]
	if told && strings.HasPrefix(key, "kubernetes.io/") && said != "api" || c.Object == nil {
		return said, told
	}
	if v, ok := c.Object.annotations[key]; ok {
		return v, true
	}
	return said, told
}

// namespace of a pod: the runtime's word, or its object's where only the kernel knows the pod.
// Empty: unknown.
func (c *Candidate) namespace() string {
	if c.Pod.PodRef.Namespace == "" && c.Object != nil {
		return c.Object.Ref.Namespace
	}
	return c.Pod.PodRef.Namespace
}

// own is an annotation of this project's, where it counts.
func (p *Policy) own(c *Candidate, key string) string {
	if !slices.Contains(p.AnnotationNamespaces, c.namespace()) || !c.Pod.Announced && c.Object == nil {
		return ""
	}
	v, _ := c.annotation(key)
	return v
}

// candidate says who a pod is, but not yet what it uses.
func (p *Policy) candidate(pod *stats.PodStats, object *Pod) Candidate {
	c := Candidate{Pod: pod, Object: object}
	if object != nil && object.priority.OK {
		c.Keys.Priority = object.priority
	} else if text := p.own(&c,
		annotationPriority); text != "" { // an error would be allocated for every pod
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

// Judge says what is known of a pod's priority, and why the pod is never a victim; empty: it may be
// one. object may be nil.
func (p *Policy) Judge(pod *stats.PodStats, object *Pod) (priority stats.Opt[int32],
	protected string) {
	if object != nil && !object.of(pod) {
		object = nil
	}
	c := p.candidate(pod, object)
	return c.Keys.Priority, c.Protected
}

// protected answers in the order in which the reasons are certain.
func (p *Policy) protected(c *Candidate) string {
	pod, priority := c.Pod, c.Keys.Priority
	source, hasSource := c.annotation(annotationConfigSource)
	_, mirror := c.annotation(annotationConfigMirror)
	switch {
	case pod.Self:
		return "this agent runs in it"
	case hasSource && source != "api":
		return p.text(protection{kind: "static", of: source})
	case mirror:
		return "mirror pod"
	case priority.OK && priority.V >= systemCriticalPriority:
		return p.text(protection{kind: "critical", priority: priority.V})
	case !priority.OK && pod.NodeCritical:
		return "critical pod (oom_score_adj -997)"
	case c.Object != nil && c.Object.class != "":
		return p.text(protection{kind: "class", of: c.Object.class})
	case p.own(c, annotationNeverEvict) == "true":
		return "annotated " + annotationNeverEvict
	case !pod.Announced && staticUID(pod.PodRef.UID): // no client's object has one
		return "static pod (its UID is a hash)"
	case !priority.OK && slices.Contains(p.ProtectedNamespaces, c.namespace()):
		return p.text(protection{kind: "namespace", of: c.namespace()})
	}
	return ""
}

// memoryRequest of a pod: its object's, the annotation's, or what the Summary knows of it. A pod in
// a cgroup of class BestEffort has none, whatever its object says.
func (p *Policy) memoryRequest(c *Candidate) stats.Opt[stats.Range] {
	if c.Object != nil {
		if c.Pod.QOSClass == stats.BestEffort {
			return stats.Some(stats.Range{})
		}
		return stats.Some(stats.Exactly(c.Object.memoryRequest))
	}
	if text := p.own(c, annotationMemoryRequest); text != "" {
		if q, err := parseQuantity(text); err == nil && q.Sign() >= 0 {
			return stats.Some(stats.Exactly(bytes(q)))
		}
	}
	return c.Pod.MemoryRequest
}

// staticUID tells the UID of a static pod, 32 hexadecimal digits (pkg/kubelet/config/common.go
// applyDefaults), from a UUID.
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
