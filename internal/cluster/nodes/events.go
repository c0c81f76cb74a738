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

// Sources of events, named as upstream.
const (
	nodeComponent  = "node-controller"
	taintComponent = "taint-eviction-controller"
)

// events sends events with client-go's recorders, which aggregate similar events and drop those
// that they cannot send in time.
type events struct {
	recorders map[string]record.EventRecorder
}

// newEvents returns recorders that stop when the context ends.
func newEvents(ctx context.Context, client kubernetes.Interface, log *slog.Logger) *events {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typed.EventSinkImpl{Interface: client.CoreV1().Events("")})
	scheme := runtime.NewScheme()
	// Each reference names its kind, so the recorder does not need the scheme.
	if err := v1.AddToScheme(scheme); err != nil {
		//log: The object types for events could not be registered. Events may be missing.
		//do: Report a bug: this depends on the build only.
		log.Error("cannot set up event recorder", "error", err)
	}
	out := &events{recorders: map[string]record.EventRecorder{}}
	for _, component := range []string{nodeComponent, taintComponent} {
		out.recorders[component] = b.NewRecorder(scheme, v1.EventSource{Component: component})
	}
	return out
}

// record sends events of a component.
func (e *events) record(component string, all []cluster.Event) {
	for i := range all {
		x := &all[i]
		ref := &v1.ObjectReference{Kind: x.Kind, APIVersion: "v1", Namespace: x.Namespace, Name: x.Name,
			UID: x.UID}
		e.recorders[component].Event(ref, x.Type, x.Reason, x.Message)
	}
}

// heldEvents holds the events of silent nodes and their pods until the write succeeds. If the node
// is in contact before, the events would be wrong.
type heldEvents struct {
	nodes map[string]cluster.Event
	pods  map[types.UID]cluster.Event
}

func newHeldEvents() heldEvents {
	return heldEvents{nodes: map[string]cluster.Event{}, pods: map[types.UID]cluster.Event{}}
}

// hold keeps the events that depend on a write and returns the others.
func (h *heldEvents) hold(actions *lifecycle.Actions) (now []cluster.Event) {
	silent := make(map[types.UID]bool, len(actions.Status))
	for i := range actions.Status {
		silent[actions.Status[i].UID] = true
	}
	for _, e := range actions.Events {
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

// take removes a held event and returns it as a list.
func take[K comparable](held map[K]cluster.Event, key K) []cluster.Event {
	e, ok := held[key]
	if !ok {
		return nil
	}
	delete(held, key)
	return []cluster.Event{e}
}
