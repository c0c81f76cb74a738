package verdict

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
)

// podPatch is a strategic merge patch of pods/status. The UID and the version make it fail where
// the pod is another one, or has changed.
type podPatch struct {
	Metadata struct {
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Status struct {
		Phase      v1.PodPhase    `json:"phase,omitempty"`
		Reason     string         `json:"reason,omitempty"`
		Message    string         `json:"message,omitempty"`
		Conditions []podCondition `json:"conditions,omitempty"`
	} `json:"status"`
}

// podCondition is one that takes the place of what the pod has by its type. v1.PodCondition leaves
// out an empty message, and so would leave the one that was there.
type podCondition struct {
	Type               v1.PodConditionType `json:"type"`
	Status             v1.ConditionStatus  `json:"status"`
	Reason             string              `json:"reason"`
	Message            string              `json:"message"`
	LastTransitionTime metav1.Time         `json:"lastTransitionTime"`
	ObservedGeneration int64               `json:"observedGeneration,omitempty"`
}

// Patch is what does a verdict's act to the pod that it was reached by: the body of a PATCH of
// pods/status of type application/strategic-merge-patch+json. nil: the act needs none.
func Patch(now time.Time, act Act, r *api.Record, pod *v1.Pod) []byte {
	var p podPatch
	p.Metadata.UID, p.Metadata.ResourceVersion = string(pod.UID), pod.ResourceVersion
	at := metav1.NewTime(now.Truncate(time.Second))
	add := func(kind v1.PodConditionType, status v1.ConditionStatus, reason, message string) {
		since := at
		if c := condition(pod, kind); c != nil && c.Status == status {
			since = c.LastTransitionTime
		}
		p.Status.Conditions = append(p.Status.Conditions, podCondition{kind, status, reason, message,
			since, observedGeneration(pod, kind)})
	}
	target := func(status v1.ConditionStatus, message string) {
		// whoever said so before has its own reason
		if c := condition(pod, v1.DisruptionTarget); c == nil || c.Status != status {
			add(v1.DisruptionTarget, status, ReasonTarget, message)
		}
	}
	unready := func(kind v1.PodConditionType) {
		if c := condition(pod, kind); c == nil || c.Status != v1.ConditionFalse ||
			c.Reason != reasonFailed {
			add(kind, v1.ConditionFalse, reasonFailed, "")
		}
	}
	text := shorten(r.Message, maxStatusMessage)
	switch act {
	case Mark:
		target(v1.ConditionTrue, text)
	case Unmark:
		target(v1.ConditionFalse, "The pod was chosen for eviction by jettison, and lives.")
	case Fail, Restore:
		p.Metadata.Annotations = map[string]string{Annotation: annotation(r, pod)}
		p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, reasonOf(r), text
		if r.Disruption {
			target(v1.ConditionTrue, text)
		}
		unready(v1.PodReady)
		unready(v1.ContainersReady)
	case Yield:
		p.Metadata.Annotations = map[string]string{Annotation: annotation(r, pod)}
	default:
		return nil
	}
	body, _ := json.Marshal(&p) // of strings and times alone
	return body
}

// annotation is the record, and beside it how often the status was mended, or given up: the kubelet
// takes the change for an update of the pod only where the annotation is another one, and policy
// jettison-evicted lets a reason go from then on.
func annotation(r *api.Record, pod *v1.Pod) string {
	if recordID(pod) != r.ID {
		return r.ID
	}
	_, count, _ := strings.Cut(pod.Annotations[Annotation], restoreSeparator)
	n, _ := strconv.Atoi(count) // none: 0
	return r.ID + restoreSeparator + strconv.Itoa(n+1)
}

// mends stands between the record and how often its status was mended.
const restoreSeparator = "#"

// generation is that which the condition was observed by: the bridge does not say more than the
// kubelet did.
func observedGeneration(pod *v1.Pod, kind v1.PodConditionType) int64 {
	if c := condition(pod, kind); c != nil {
		return c.ObservedGeneration
	}
	return 0
}

func condition(pod *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// reasonOf is that of the pod's status: Evicted, or Preempting where it went for a critical pod.
func reasonOf(r *api.Record) string { return cmp.Or(r.StatusReason, ReasonEvicted) }

// shorten has a text be of so many bytes at most.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}
