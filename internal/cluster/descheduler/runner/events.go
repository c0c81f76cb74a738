package runner

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record/util"

	"jettison/cluster/deschedule"
)

// reporter is the name of this program in events and evictions.
const reporter = "jettison-cluster"

const (
	// eventTimeout limits the request for an event.
	eventTimeout = 5 * time.Second
	// maxNoteLength is the maximum length of a note
	// (k8s.io/kubernetes/pkg/apis/core/validation/events.go).
	maxNoteLength = 1024
)

// event writes an Event about an eviction, or about its failure. Reason, action and note are
// those of 0.36.0.
func (d *descheduler) event(ctx context.Context, now time.Time, e *deschedule.Eviction,
	failed error) {
	kind, reason := v1.EventTypeNormal, e.Strategy
	note := fmt.Sprintf("pod eviction from %s node by %s: %s", e.Node, reporter, e.Reason)
	if failed != nil {
		kind, reason = v1.EventTypeWarning, "EvictionFailed"
		note = fmt.Sprintf("pod eviction from %s node by %s failed: %v", e.Node, reporter, failed)
	}
	instance, err := os.Hostname()
	if err != nil || instance == "" {
		instance = reporter
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_, err = d.write.EventsV1().Events(e.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: util.GenerateEventName(e.Name,
			now.UnixNano())},
		EventTime: metav1.NewMicroTime(now), ReportingController: reporter, ReportingInstance: instance,
		Action: "Descheduled",
		Reason: reason, Type: kind, Note: truncate(note, maxNoteLength),
		Regarding: v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: e.Namespace, Name: e.Name,
			UID: e.UID},
	}, metav1.CreateOptions{})
	if err != nil && ctx.Err() == nil {
		//log: The API server rejected the Event about an eviction, or did not answer in time. The
		//  Event is lost.
		//do: Grant the permission to create events in events.k8s.io.
		d.o.Log.Warn("event dropped", "pod", e.Namespace+"/"+e.Name, "error", err)
	}
}

func truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most-3] + "..."
}
