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

// podPatch is a strategic merge patch of pods/status. The API server rejects it if the pod was
// replaced (uid) or changed (resourceVersion).
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

// podCondition replaces the pod's condition of the same type. v1.PodCondition omits an empty
// message, so the previous message would stay.
type podCondition struct {
	Type               v1.PodConditionType `json:"type"`
	Status             v1.ConditionStatus  `json:"status"`
	Reason             string              `json:"reason"`
	Message            string              `json:"message"`
	LastTransitionTime metav1.Time         `json:"lastTransitionTime"`
	ObservedGeneration int64               `json:"observedGeneration,omitempty"`
}

// Patch returns the body of the PATCH of pods/status that performs act on the pod, of type
// application/strategic-merge-patch+json; nil: act needs no patch.
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
		// keep the reason of a client that set the condition before
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
		target(v1.ConditionFalse, "The pod was chosen for eviction by jettison and still runs.")
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
	body, _ := json.Marshal(&p) // cannot fail: strings and times only
	return body
}

// annotation returns the record's ID, followed by the number of restores and yields unless it is 0.
// The kubelet handles the patch as an update of the pod only if the annotation changes. The
// admission policy jettison-evicted allows removing the reason once the annotation contains the
// number.
func annotation(r *api.Record, pod *v1.Pod) string {
	if recordID(pod) != r.ID {
		return r.ID
	}
	_, count, _ := strings.Cut(pod.Annotations[Annotation], restoreSeparator)
	n, _ := strconv.Atoi(count) // none: 0
	return r.ID + restoreSeparator + strconv.Itoa(n+1)
}

// restoreSeparator separates the record's ID from the number of restores.
const restoreSeparator = "#"

// observedGeneration returns the generation of the pod's condition: the bridge claims no newer one
// than the kubelet.
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

// reasonOf returns the reason of the pod's status: Evicted, or Preempting after a preemption.
func reasonOf(r *api.Record) string { return cmp.Or(r.StatusReason, ReasonEvicted) }

// shorten returns text cut to limit bytes.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-3], "") + "..."
}
