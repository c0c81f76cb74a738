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

// FindingsEvery is the time within which one event of a kind is sent of an object, however often
// the bridge starts meanwhile.
const FindingInterval = 10 * time.Minute

// MaxFindings bounds the findings of one state: a node of a thousand pods at their limits makes no
// thousand events.
const MaxFindings = 16

// Findings are events of what a state tells and no record does: a breaker that opened, a headroom
// that is too small, pods at limits of their own. They are the same within FindingsEvery.
func Findings(s *api.State, node string) []*v1.Event {
	var out []*v1.Event
	at, when := s.Time, timeBucket(s.Time)
	of := eventSubject{node: node, time: at, warning: true, object: nodeObject(node)}
	if s.Stopped != "" {
		out = append(out, of.event("EvictionsStopped", "Evictions are stopped, for they did not help: "+
			s.Stopped, "stopped", when))
	}
	if h := &s.Headroom; h.ThresholdBytes > 0 && h.NeededBytes > h.ThresholdBytes {
		out = append(out, of.event("EvictionHeadroomTooSmall", fmt.Sprintf(
			"The hard threshold of memory.available is %s, and processes on this node can use that up "+
				"before one is killed: %s is safe",
			mebi(h.ThresholdBytes), mebi(h.NeededBytes)), "headroom", when))
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
		const text = "The pod is at a memory limit of its own: this is not the node's pressure"
		out = append(out, pod.event("MemoryLimitHit", text, "ownlimit", when))
	}
	return out
}

// Garbage is the event of an agent's event that says that garbage collection fails; nil: it is
// none.
func GarbageCollectionFailed(e *api.Event, node string) *v1.Event {
	if e.Kind != api.EventGarbage || e.Message != api.MessageGarbageFails {
		return nil
	}
	of := eventSubject{node: node, time: e.Time, warning: true, object: nodeObject(node)}
	text := "Not all garbage could be collected"
	for _, key := range []string{"error", "problems"} {
		switch why := e.Fields[key].(type) {
		case string:
			text += ": " + why
		case []any: // a list of them
			var all []string
			for _, one := range why {
				all = append(all, fmt.Sprint(one))
			}
			text += ": " + strings.Join(all, "; ")
		}
	}
	return of.event("GarbageCollectionFailed", text, "garbage", timeBucket(e.Time))
}

func mebi(bytes uint64) string {
	const unit = 1 << 20
	return resource.NewQuantity(int64((bytes+unit-1)/unit)*unit, resource.BinarySI).String()
}
