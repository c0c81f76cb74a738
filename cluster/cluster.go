// Package cluster holds types shared by the packages below it: events, a rate limit, and the backoff
// of a retried write. It reads no clock: callers pass the time.
//
//	cluster.go  Event, Earliest, ReturnPeriod
//	bucket.go   Bucket: a rate limit
//	attempt.go  Attempt: a write that is retried with backoff
package cluster

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ReturnPeriod is the time within which a live kubelet renews its Lease and posts its status after the
// API server was down. It tries every ten seconds, with a timeout of ten
// (pkg/kubelet/kubelet.go, 1.37.2).
const ReturnPeriod = 20 * time.Second

// Event is the content of a Kubernetes Event about an object.
type Event struct {
	Kind      string // Node or Pod
	Namespace string // empty for a Node
	Name      string
	UID       types.UID
	Type      string // Normal or Warning
	Reason    string
	Message   string
}

// Object returns "Node/NAME" or "Pod/NAMESPACE/NAME".
func (e *Event) Object() string {
	if e.Namespace == "" {
		return e.Kind + "/" + e.Name
	}
	return e.Kind + "/" + e.Namespace + "/" + e.Name
}

// SortEvents sorts events by object, then by reason and message.
func SortEvents(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Object(), b.Object()), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Message, b.Message))
	})
}

// Earliest sets *at to other if other is earlier. The zero time means none.
func Earliest(at *time.Time, other time.Time) {
	if !other.IsZero() && (at.IsZero() || other.Before(*at)) {
		*at = other
	}
}
