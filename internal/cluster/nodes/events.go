package nodes

import (
	"context"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"jettison/cluster"
)

// Sources of events, as upstream's.
const (
	nodeComponent  = "node-controller"
	taintComponent = "taint-eviction-controller"
)

// events are told by client-go's recorder, which puts together what is alike. What cannot be told in time is dropped.
type events struct {
	of map[string]record.EventRecorder
}

// newEvents makes events that end with a context.
func newEvents(ctx context.Context, client kubernetes.Interface, log *slog.Logger) *events {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typed.EventSinkImpl{Interface: client.CoreV1().Events("")})
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil { // it names no object that is not referred to by kind
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
		ref := &v1.ObjectReference{Kind: x.Kind, APIVersion: "v1", Namespace: x.Namespace, Name: x.Name, UID: x.UID}
		e.of[component].Event(ref, x.Type, x.Reason, x.Message)
	}
}
