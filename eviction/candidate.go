package eviction

import (
	"slices"
	"strconv"

	"jettison/stats"
)

// Annotations of pods. kubernetes.io ones are the kubelet's (pkg/kubelet/types/pod_update.go); jettison/* count only in
// the namespaces that the configuration allows, or a tenant could make itself immune.
const (
	annotationConfigSource = "kubernetes.io/config.source"
	annotationConfigMirror = "kubernetes.io/config.mirror"
	annotationPriority     = "jettison/priority"
)

// systemCriticalPriority is the lowest priority of critical pods (pkg/apis/scheduling/types.go SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// Policy is what the configuration says about who may be evicted.
type Policy struct {
	AnnotationNamespaces []string // where jettison/* annotations count
	ProtectedNamespaces  []string // never victims while their priority is unknown
}

// Candidate is a pod as the ranking sees it.
type Candidate struct {
	Pod      stats.PodStats
	Priority stats.Opt[int32]
	// Protected says in words why the pod is never a victim; empty: it may be one.
	Protected string
	// SetAside: the pod was killed before and did not die; it is ranked last.
	SetAside bool
}

func (p Policy) candidate(pod stats.PodStats) Candidate {
	c := Candidate{Pod: pod}
	if slices.Contains(p.AnnotationNamespaces, pod.PodRef.Namespace) && pod.Announced {
		if v, err := strconv.ParseInt(pod.Annotations[annotationPriority], 10, 32); err == nil {
			c.Priority = stats.Some(int32(v))
		}
	}
	c.Protected = p.protected(c)
	return c
}

// protected answers in the order in which the reasons are certain.
func (p Policy) protected(c Candidate) string {
	pod := c.Pod
	source, hasSource := pod.Annotations[annotationConfigSource]
	_, mirror := pod.Annotations[annotationConfigMirror]
	switch {
	case pod.Self:
		return "this agent runs in it"
	case hasSource && source != "api":
		return "static pod (source " + source + ")"
	case mirror:
		return "mirror pod"
	case c.Priority.OK && c.Priority.V >= systemCriticalPriority:
		return "critical pod (priority " + strconv.Itoa(int(c.Priority.V)) + ")"
	case pod.NodeCritical:
		return "critical pod (oom_score_adj -997)"
	case !pod.Announced && staticUID(pod.PodRef.UID):
		return "static pod (its UID is a hash)"
	case !c.Priority.OK && slices.Contains(p.ProtectedNamespaces, pod.PodRef.Namespace):
		return "namespace " + pod.PodRef.Namespace + " is protected and the pod's priority unknown"
	}
	return ""
}

// staticUID tells the UID of a static pod, 32 hexadecimal digits (pkg/kubelet/config/common.go applyDefaults), from a
// UUID.
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
