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

// reporter is what events and evictions are told by.
const reporter = "jettison-cluster"

const (
	// eventLimit is for an event: it is no reason to wait long.
	eventLimit = 5 * time.Second
	// mostNote is how long a note may be (k8s.io/kubernetes/pkg/apis/core/validation/events.go).
	mostNote = 1024
)

// event tells of an eviction, or why there was none. Names, action and text are those of 0.36.0.
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
	ctx, cancel := context.WithTimeout(ctx, eventLimit)
	defer cancel()
	_, err = d.write.EventsV1().Events(e.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: util.GenerateEventName(e.Name,
			now.UnixNano())},
		EventTime: metav1.NewMicroTime(now), ReportingController: reporter, ReportingInstance: instance,
		Action: "Descheduled",
		Reason: reason, Type: kind, Note: cut(note, mostNote),
		Regarding: v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: e.Namespace, Name: e.Name,
			UID: e.UID},
	}, metav1.CreateOptions{})
	if err != nil && ctx.Err() == nil {
		d.o.Log.Warn("an event was not told", "pod", e.Namespace+"/"+e.Name, "error", err)
	}
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most-3] + "..."
}

func tokenOfPod() ([]byte, error) { return os.ReadFile(ownToken) }
