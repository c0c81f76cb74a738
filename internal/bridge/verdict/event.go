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

// Component is who says it, in an event.
const Component = "jettison"

// EventsFor is how long after it happened an event is still worth sending: an API server keeps
// events for an hour by default.
const EventMaxAge = time.Hour

// Reasons of events. Evicted and EvictionThresholdMet are the kubelet's.
const (
	reasonThreshold = "EvictionThresholdMet"
	reasonOutlived  = "EvictionOutlived"
	reasonAbandoned = "EvictionAbandoned"
	reasonHeldOff   = "EvictionHoldOff"
	reasonLost      = "EvictionRecordsLost"
)

// about is what an event is about, and when it happened.
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
	if namespace == "" { // where events of what is in no namespace are
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

// maxMessage is how long an event's message may be in bytes (pkg/apis/core/validation/events.go
// NoteLengthLimit, v1.36.3).
const maxMessage = 1024

// cut has a message no longer than that, and of one line that a terminal may be shown: names of
// cgroups are a tenant's.
func printableMessage(message string) string {
	message = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) { // which knows one space, U+0020
			return ' '
		}
		return r
	}, message)
	return shorten(message, maxMessage)
}

// Bounds of what policies jettison-bridge-pods and jettison-bridge-events take. A message and
// annotations name every container that is blamed, of which an author has as many as he likes.
const (
	maxStatusMessage = 4096
	maxAnnotation    = 2048
)

// shortened are annotations whose values are no longer than the policy takes.
func shortenAnnotations(all map[string]string) map[string]string {
	out := maps.Clone(all)
	for key, value := range out {
		out[key] = shorten(value, maxAnnotation)
	}
	return out
}

// nodeObject is how events name a node: by its name in place of its UID, as the kubelet's do, so
// that kubectl describe finds them.
func nodeObject(node string) v1.ObjectReference {
	return v1.ObjectReference{Kind: "Node", Name: node, UID: types.UID(node)}
}

// Events are those that are due for a record by now, of the pod and of the node. v is its verdict;
// alone: nothing but events is written, so that the pod comes back by itself.
func Events(now time.Time, r *api.Record, v Verdict, node string, alone bool) []*v1.Event {
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
		text := "The pod was chosen for eviction, and lives: " + r.Outcome.String() + ". " + r.Message
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
			fmt.Sprintf("The pod was killed at %s, and its container %s has started since: it lives. %s",
				at.UTC().Format(time.RFC3339), v.RestartedContainer, r.Message), r.ID, "outlived"))
	}
	if until := r.HoldOffUntil; until.After(now) && (alone || v.RestartedContainer != "") {
		held := eventSubject{node: node, time: at, object: pod.object}
		out = append(out, held.event(reasonHeldOff, "The pod is not let in again before "+
			until.UTC().Format(time.RFC3339), r.ID, "heldoff"))
	}
	return out
}

// Lost is the event that records are missing: of evictions up to one's ID nothing can be said. nil:
// that was too long ago.
func RecordsLost(now time.Time, node string, gap *api.RecordsGap) *v1.Event {
	at, ok := BeganAt(gap.Until)
	if !ok {
		at = now
	}
	if now.Sub(at) > EventMaxAge {
		return nil
	}
	a := eventSubject{node: node, time: at, warning: true, object: nodeObject(node)}
	upTo := gap.Until
	if upTo == "" {
		upTo = timeBucket(now)
	}
	return a.event(reasonLost, "Records of evictions are lost: "+gap.Reason, upTo, "lost")
}

// starved is what is short, in the kubelet's words (pkg/kubelet/eviction/helpers.go
// signalToResource, v1.36.3); else the signal's own name.
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
