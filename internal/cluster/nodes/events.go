package nodes

import (
	"context"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"jettison/cluster"
	"jettison/cluster/lifecycle"
)

// Sources of events, as upstream's.
const (
	nodeComponent  = "node-controller"
	taintComponent = "taint-eviction-controller"
)

// events are told by client-go's recorder, which puts together what is alike. What cannot be told
// in time is dropped.
type events struct {
	of map[string]record.EventRecorder
}

// newEvents makes events that end with a context.
func newEvents(ctx context.Context, client kubernetes.Interface, log *slog.Logger) *events {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typed.EventSinkImpl{Interface: client.CoreV1().Events("")})
	scheme := runtime.NewScheme()
	// it names no object that is not referred to by kind
	if err := v1.AddToScheme(scheme); err != nil {
		log.Error("events have no scheme", "error", err)
	}
	out := &events{of: map[string]record.EventRecorder{}}
	for _, component := range []string{nodeComponent, taintComponent} {
		out.of[component] = b.NewRecorder(scheme, v1.EventSource{Component: component})
	}
	return out
}

// say tells events of a component.
func (e *events) say(component string, all []cluster.Event) {
	for i := range all {
		x := &all[i]
		ref := &v1.ObjectReference{Kind: x.Kind, APIVersion: "v1", Namespace: x.Namespace, Name: x.Name,
			UID: x.UID}
		e.of[component].Event(ref, x.Type, x.Reason, x.Message)
	}
}

// held are events of nodes that are silent, and of pods of theirs, until that is written: a node
// that was heard of meanwhile was not silent.
type held struct {
	nodes map[string]cluster.Event
	pods  map[types.UID]cluster.Event
}

func newHeld() held {
	return held{nodes: map[string]cluster.Event{}, pods: map[types.UID]cluster.Event{}}
}

// hold keeps those of what a step has said, and returns the others.
func (h *held) hold(done *lifecycle.Actions) (now []cluster.Event) {
	silent := make(map[types.UID]bool, len(done.Status))
	for i := range done.Status {
		silent[done.Status[i].UID] = true
	}
	for _, e := range done.Events {
		switch {
		case e.Kind == "Pod":
			h.pods[e.UID] = e
		case silent[e.UID] && e.Reason == lifecycle.ReasonNotReady:
			h.nodes[e.Name] = e
		default:
			if e.Reason == lifecycle.ReasonRemoved {
				delete(h.nodes, e.Name)
			}
			now = append(now, e)
		}
	}
	return now
}

// let takes out one that was held, as a list.
func let[K comparable](of map[K]cluster.Event, key K) []cluster.Event {
	e, ok := of[key]
	if !ok {
		return nil
	}
	delete(of, key)
	return []cluster.Event{e}
}
