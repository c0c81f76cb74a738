// Package writes is the writing to a cluster's API of what was decided about nodes and pods. Each
// write is made once, is bounded in time, and only takes what it was decided about: an object of
// the same name with another UID is another object, and what follows from a node's taints or
// conditions is not written over newer ones.
//
//	writes.go  Writer, and what errors mean
//	node.go    a node's conditions, labels and taints
//	pod.go     pods: their condition Ready, and their end
package writes

import (
	"context"
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// limit is for one request, waiting for its turn included.
const requestTimeout = 10 * time.Second

// Writer writes. It may be used by any goroutine.
type Writer struct {
	client    kubernetes.Interface
	reader    kubernetes.Interface // reads what a write follows from
	pdbPeriod time.Duration        // how long disruption budgets are asked; 0: they are not
}

// New makes a Writer that writes by one client, and by another reads again what a write follows
// from. While budget lasts after a pod's deadline it is evicted as its disruption budgets allow,
// then deleted; 0: it is deleted.
func New(client, reader kubernetes.Interface, pdbPeriod time.Duration) *Writer {
	return &Writer{client: client, reader: reader, pdbPeriod: pdbPeriod}
}

// object is a patch. Only fields that are set are in it.
type object struct {
	Metadata metadata `json:"metadata"`
	Spec     any      `json:"spec,omitempty"`
	Status   any      `json:"status,omitempty"`
}

// metadata makes a patch fail with a conflict where the UID, or the version, is another.
type metadata struct {
	UID             types.UID         `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

func (o *object) text() []byte {
	text, _ := json.Marshal(o) // of texts, times and lists alone
	return text
}

// gone reports whether an error says that the object is not there.
func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// refused reports whether an error says that this request will never do: by a role, a policy or a
// rule.
func isRejected(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) ||
		apierrors.ReasonForError(err) == metav1.StatusReasonBadRequest ||
		apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause)
}

// Budgeted reports whether an error says that a disruption budget does not let a pod go now.
func IsBudgetError(err error) bool {
	return apierrors.IsTooManyRequests(err) &&
		apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause)
}

// once is a request that is made once. Where the API says "later", client-go would wait for as long
// as it says, and ask again: by then that may not be so any more which the request follows from.
func withoutRetries(r *rest.Request) *rest.Request { return r.MaxRetries(0) }

func withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}
