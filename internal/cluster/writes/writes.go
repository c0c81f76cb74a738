// Package writes writes the decisions about nodes and pods to the API server. Each write is sent
// once and has a timeout. It applies only to the object of the decision: the UID and the resource
// version are preconditions. So the API server rejects a write that another leader's has overtaken.
// What a write depends on otherwise is read last, after the wait for the rate limit.
//
//	writes.go  Writer, and the classification of errors
//	node.go    a node's conditions, labels and taints
//	pod.go     a pod's condition Ready, eviction and deletion
package writes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Limits of requests, and of the wait for the client's rate limit.
const (
	readTimeout = 10 * time.Second
	// A webhook may delay a write for 30 s (pkg/apis/admissionregistration/validation, 1.37.2), for
	// example because its backend was on the silent node. The API server drops the write of a client
	// that gives up earlier, even if it would ignore the webhook.
	writeTimeout = 40 * time.Second
)

// Writer sends the writes. It is safe for concurrent use.
type Writer struct {
	client    kubernetes.Interface // for writes only: it sends nothing without leadership
	reader    kubernetes.Interface
	pdbPeriod time.Duration // how long disruption budgets are respected; 0: not at all
}

// New returns a Writer that writes with client and reads with reader. For pdbPeriod after its
// deadline, a pod is evicted as its disruption budgets allow; later, it is deleted. 0: it is
// deleted immediately. Times are those of the caller's clock.
func New(client, reader kubernetes.Interface, pdbPeriod time.Duration) *Writer {
	return &Writer{client: client, reader: reader, pdbPeriod: pdbPeriod}
}

// object is a patch with the fields that are set.
type object struct {
	Metadata metadata `json:"metadata"`
	Spec     any      `json:"spec,omitempty"`
	Status   any      `json:"status,omitempty"`
}

// metadata holds the preconditions of a patch. If the UID or the version differs, it fails with a
// conflict.
type metadata struct {
	UID             types.UID         `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

func (o *object) text() []byte {
	text, _ := json.Marshal(o) // cannot fail: strings, times and lists only
	return text
}

// isNotFound reports whether the object does not exist. A 404 of a proxy is no answer of the API
// server, and that of an admission webhook names no object.
func isNotFound(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) ||
		!errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != ""
}

// isRejected reports whether a retry of the request cannot succeed, because a role, a policy or
// validation rejected it.
func isRejected(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) ||
		apierrors.ReasonForError(err) == metav1.StatusReasonBadRequest ||
		apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause)
}

// IsBudgetError reports whether a disruption budget blocked an eviction.
func IsBudgetError(err error) bool {
	return apierrors.IsTooManyRequests(err) &&
		apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause)
}

// awaitTurn waits until the client's rate limit admits a write. The caller then reads what the write
// depends on and sends it with atOnce.
func (w *Writer) awaitTurn(ctx context.Context) error {
	limiter := w.client.CoreV1().RESTClient().GetRateLimiter()
	if limiter == nil {
		return nil
	}
	ctx, cancel := withWriteTimeout(ctx)
	defer cancel()
	if err := limiter.Wait(ctx); err != nil {
		return fmt.Errorf("wait for the rate limit of writes: %w", err)
	}
	return nil
}

// atOnce sends a write whose turn has come, without client-go's waits: for the rate limit, and for
// the retry when the API server asks for a later one. The reason for the write may be void
// afterwards.
func atOnce(r *rest.Request) *rest.Request { return r.MaxRetries(0).Throttle(nil) }

func withReadTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, readTimeout)
}

func withWriteTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, writeTimeout)
}
