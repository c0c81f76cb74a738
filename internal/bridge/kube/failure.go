package kube

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Failure classifies an error by the action that the caller should take.
type Failure int

// Values of Failure.
const (
	None     Failure = iota
	Conflict         // the object has changed: get it and judge again
	NotFound         // no such object, no valid name, or the namespace is being deleted
	// denied by a role, an admission policy or validation; also by a server that has just started
	// and knows no roles yet
	Denied
	// the API server or a webhook failed: may concern this request only
	ServerError
	Unreachable // no response, or the server asks for time: other requests will fail too
)

// String returns the word for a metric's label.
func (f Failure) String() string {
	return [...]string{"ok", "conflict", "not_found", "denied", "server_error", "unreachable"}[f]
}

// Classify returns the Failure of an error returned by a Client.
func Classify(err error) Failure {
	if err == nil {
		return None
	}
	if errors.Is(err, errNoName) {
		return NotFound
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Unreachable // no response, or an unreadable one
	}
	code := status.Status().Code
	if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && !isOverloaded(code) &&
		code != http.StatusUnauthorized {
		// The response is from a proxy in front of the API server, which knows no objects: its 404
		// does not mean that the pod does not exist.
		return ServerError
	}
	switch {
	case code == http.StatusConflict:
		return Conflict
	case code == http.StatusNotFound, apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return NotFound
	case isOverloaded(code), code == http.StatusUnauthorized:
		return Unreachable
	case code >= http.StatusInternalServerError, code == http.StatusRequestTimeout:
		return ServerError
	}
	return Denied
}

// TimedOut reports whether err is a timeout. A timeout may concern this request only.
func TimedOut(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// isOverloaded reports whether the status code asks the client to wait.
func isOverloaded(code int32) bool {
	return code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
}

// maxRetryAfter limits a Retry-After: a proxy in front of the API server may ask for a day.
const maxRetryAfter = 5 * time.Minute

// RetryAfter returns the delay until the retry that the server asks for. !ok: err has no such
// delay.
func RetryAfter(err error) (after time.Duration, ok bool) {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, maxRetryAfter), ok
}
