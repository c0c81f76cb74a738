package verdict

import (
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/stats"
)

// Component is the source component of events.
const Component = "jettison"

// EventMaxAge is the maximum age of an event that is sent: an API server keeps events for an hour
// by default.
const EventMaxAge = time.Hour

// Reasons of events. Evicted and EvictionThresholdMet are the kubelet's.
const (
	reasonThreshold = "EvictionThresholdMet"
	reasonOutlived  = "EvictionOutlived"
	reasonAbandoned = "EvictionAbandoned"
	reasonHeldOff   = "EvictionHoldOff"
	reasonLost      = "EvictionRecordsLost"
)

// eventSubject describes the object and the time of an event.
type eventSubject struct {
	object  v1.ObjectReference
	node    string
	time    time.Time
	warning bool
}

func (a eventSubject) event(reason, message string, parts ...string) *v1.Event {
	at, kind := metav1.NewTime(a.time.Truncate(time.Second)), v1.EventTypeNormal
	if a.warning {
		kind = v1.EventTypeWarning
	}
	namespace := a.object.Namespace
	if namespace == "" { // the namespace of events for cluster-scoped objects
		namespace = metav1.NamespaceDefault
	}
	return &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: eventName(a.object.Name, parts...)},
		InvolvedObject: a.object, Reason: reason, Message: printableMessage(message), Type: kind,
		Source: v1.EventSource{Component: Component, Host: a.node}, ReportingController: Component,
		ReportingInstance: a.node,
		FirstTimestamp:    at, LastTimestamp: at, Count: 1,
	}
}

// maxMessage is the longest message of an event, in bytes (pkg/apis/core/validation/events.go
// NoteLengthLimit, v1.37.2).
const maxMessage = 1024

// printableMessage shortens a message to maxMessage and replaces control characters and line
// breaks: tenants choose the names of cgroups.
func printableMessage(message string) string {
	message = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) { // IsPrint accepts no space except U+0020
			return ' '
		}
		return r
	}, message)
	return shorten(message, maxMessage)
}

// Limits of the admission policies jettison-bridge-pods and jettison-bridge-events. A message and
// annotations name each container that contributed, and a pod may have any number of containers.
const (
	maxStatusMessage = 4096
	maxAnnotation    = 2048
)

// shortenAnnotations returns a copy with values of at most maxAnnotation bytes.
func shortenAnnotations(all map[string]string) map[string]string {
	out := maps.Clone(all)
	for key, value := range out {
		out[key] = shorten(value, maxAnnotation)
	}
	return out
}

// nodeObject returns a reference to a node with its name as UID, as in the kubelet's events, so
// that kubectl describe finds them.
func nodeObject(node string) v1.ObjectReference {
	return v1.ObjectReference{Kind: "Node", Name: node, UID: types.UID(node)}
}

// Events returns the events of the pod and of the node that are due for a record. v is the verdict
// on the record. eventsOnly: the bridge writes no pod statuses, so the kubelet restarts the pod.
func Events(now time.Time, r *api.Record, v Verdict, node string, eventsOnly bool) []*v1.Event {
	at := r.EndBegan().Time
	if at.IsZero() || now.Sub(at) > EventMaxAge || r.DryRun || r.Outcome == api.OutcomeDryRun ||
		r.Pod.Name == "" {
		return nil
	}
	pod := eventSubject{node: node, time: at, warning: true, object: v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: r.Pod.Namespace, Name: r.Pod.Name,
		UID: types.UID(r.Pod.UID),
	}}
	if Abandoned(r) {
		text := "The pod was chosen for eviction and still runs (" + r.Outcome.String() + "). " + r.Message
		return []*v1.Event{pod.event(reasonAbandoned, text, r.ID, "abandoned")}
	}
	if !processesGone(r) {
		return nil
	}
	evicted := pod.event(reasonOf(r), r.Message, r.ID)
	evicted.Annotations = shortenAnnotations(r.Annotations)
	out := []*v1.Event{evicted}
	if r.Threshold != "" {
		met := eventSubject{node: node, time: at, warning: true, object: nodeObject(node)}
		out = append(out, met.event(reasonThreshold, "Attempting to reclaim "+starvedResource(r.Signal), r.ID))
	}
	if v.RestartedContainer != "" {
		out = append(out, pod.event(reasonOutlived,
			fmt.Sprintf("The pod was killed at %s, but its container %s started later: the pod still runs. %s",
				at.UTC().Format(time.RFC3339), v.RestartedContainer, r.Message), r.ID, "outlived"))
	}
	if until := r.HoldOffUntil; until.After(now) && (eventsOnly || v.RestartedContainer != "") {
		held := eventSubject{node: node, time: at, object: pod.object}
		out = append(out, held.event(reasonHeldOff, "The pod may not restart before "+
			until.UTC().Format(time.RFC3339), r.ID, "heldoff"))
	}
	return out
}

// RecordsLost returns the event of a record gap: the agent lost records up to the ID in gap. It
// returns nil if the gap is too old.
func RecordsLost(now time.Time, node string, gap *api.RecordsGap) *v1.Event {
	at, ok := BeganAt(gap.Until)
	if !ok {
		at = now
	}
	if now.Sub(at) > EventMaxAge {
		return nil
	}
	a := eventSubject{node: node, time: at, warning: true, object: nodeObject(node)}
	lastLost := gap.Until
	if lastLost == "" {
		lastLost = timeBucket(now)
	}
	return a.event(reasonLost, "Eviction records were lost: "+gap.Reason, lastLost, "lost")
}

// starvedResource returns the resource of a signal in the kubelet's words
// (pkg/kubelet/eviction/helpers.go signalToResource, v1.37.2), or else the signal's name.
func starvedResource(s stats.Signal) string {
	name := string(s)
	switch {
	case strings.HasSuffix(name, ".inodesFree"):
		return "inodes"
	case strings.HasPrefix(name, "memory.available"), strings.HasPrefix(name, "allocatableMemory."):
		return string(v1.ResourceMemory)
	case strings.HasPrefix(name, "nodefs."), strings.HasPrefix(name, "imagefs."),
		strings.HasPrefix(name, "containerfs."),
		strings.HasPrefix(name, "ephemeral"), strings.HasPrefix(name, "emptydir"):
		return string(v1.ResourceEphemeralStorage)
	case strings.HasPrefix(name, "pid."):
		return "pids"
	}
	return name
}
