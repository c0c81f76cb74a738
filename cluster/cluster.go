// Package cluster holds the words that the pure cores below it share: what is said of an object,
// how often something may be done, and when something that failed is tried again. It reads no
// clock: whoever asks says what time it is.
//
//	cluster.go  Event; Earliest
//	bucket.go   Bucket: so many a second
//	attempt.go  Attempt: under way, failed, again when
package cluster

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Event is what is said of an object, as an Event of the API would say it.
type Event struct {
	Kind      string // Node or Pod
	Namespace string // empty for a Node
	Name      string
	UID       types.UID
	Type      string // Normal or Warning
	Reason    string
	Message   string
}

// Object is "Node/NAME" or "Pod/NAMESPACE/NAME".
func (e *Event) Object() string {
	if e.Namespace == "" {
		return e.Kind + "/" + e.Name
	}
	return e.Kind + "/" + e.Namespace + "/" + e.Name
}

// SortEvents puts events in the order of their objects, and those of one object in that of their
// reasons.
func SortEvents(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Object(), b.Object()), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Message, b.Message))
	})
}

// Earliest keeps in *at the earlier of two times. The zero time is none.
func Earliest(at *time.Time, other time.Time) {
	if !other.IsZero() && (at.IsZero() || other.Before(*at)) {
		*at = other
	}
}
