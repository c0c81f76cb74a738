package verdict

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
)

// FindingInterval is the time in which at most one event of a kind is sent for an object, even if
// the bridge restarts.
const FindingInterval = 10 * time.Minute

// MaxFindings bounds the findings of one state: a node with a thousand pods at their limits must
// not send a thousand events.
const MaxFindings = 16

// Findings returns the events for parts of a state that have no record: an open breaker,
// insufficient headroom, pods at their own limits. Their names stay the same within
// FindingInterval.
func Findings(s *api.State, node string) []*v1.Event {
	var out []*v1.Event
	at, bucket := s.Time, timeBucket(s.Time)
	subject := eventSubject{node: node, time: at, warning: true, object: nodeObject(node)}
	if s.BreakerOpen != "" {
		out = append(out, subject.event("EvictionsStopped", "Evictions are stopped because they did not help: "+
			s.BreakerOpen, "stopped", bucket))
	}
	if h := &s.Headroom; h.ThresholdBytes > 0 && h.NeededBytes > h.ThresholdBytes {
		out = append(out, subject.event("EvictionHeadroomTooSmall", fmt.Sprintf(
			"The hard threshold of memory.available is %s, but processes on this node can use that much "+
				"before a pod is killed: set it to at least %s",
			mebi(h.ThresholdBytes), mebi(h.NeededBytes)), "headroom", bucket))
	}
	for i := range s.AtOwnLimit {
		l := &s.AtOwnLimit[i]
		if len(out) == MaxFindings {
			break
		}
		if l.Pod.Name == "" {
			continue
		}
		pod := eventSubject{node: node, time: l.Since, warning: true, object: v1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: l.Pod.Namespace, Name: l.Pod.Name,
			UID: types.UID(l.Pod.UID),
		}}
		const text = "The pod is at its own memory limit; the node is not short of memory because of it"
		out = append(out, pod.event("MemoryLimitHit", text, "ownlimit", bucket))
	}
	return out
}

// GarbageCollectionFailed returns the event for an agent's event that reports failed garbage
// collection; nil: e is another event.
func GarbageCollectionFailed(e *api.Event, node string) *v1.Event {
	if e.Kind != api.EventGarbage || e.Message != api.MessageGarbageFails {
		return nil
	}
	subject := eventSubject{node: node, time: e.Time, warning: true, object: nodeObject(node)}
	text := "Garbage collection failed in part"
	for _, key := range []string{"error", "problems"} {
		switch value := e.Fields[key].(type) {
		case string:
			text += ": " + value
		case []any: // a list of texts
			var all []string
			for _, item := range value {
				all = append(all, fmt.Sprint(item))
			}
			text += ": " + strings.Join(all, "; ")
		}
	}
	return subject.event("GarbageCollectionFailed", text, "garbage", timeBucket(e.Time))
}

func mebi(bytes uint64) string {
	const unit = 1 << 20
	return resource.NewQuantity(int64((bytes+unit-1)/unit)*unit, resource.BinarySI).String()
}
