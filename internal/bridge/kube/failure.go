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

// Failure is what an error means for whoever asks again.
type Failure int

// Failures.
const (
	None     Failure = iota
	Conflict         // the object is another by now: get it, and judge anew
	NotFound         // there is none, none can have its name, or its namespace is being deleted
	// by a role, a policy or a rule of the API; by a server that has just started, for it knows no
	// roles yet
	Denied
	// the API server has a defect, or what it asks has: only this request may be concerned
	ServerError
	Unreachable // nobody answers, or asks for time: no request will do better
)

// Means says what an error of a Client means.
func Classify(err error) Failure {
	if err == nil {
		return None
	}
	if errors.Is(err, errNoName) {
		return NotFound
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Unreachable // no answer, or none that can be read
	}
	code := status.Status().Code
	if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && !isOverloaded(code) &&
		code != http.StatusUnauthorized {
		// by what stands before an API server, and knows nothing of its objects: that one says there is
		// no pod means nothing
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

// Unanswered tells that an error is that there was no answer in time. It may be this request alone
// that something holds up.
func TimedOut(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// waits tells that an answer asks for time.
func isOverloaded(code int32) bool {
	return code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
}

// longestWait is how long an API server is waited for that asks for more: what stands before it may
// ask for a day.
const maxRetryAfter = 5 * time.Minute

// AskAgain is when an API server asks to be asked again, from now on. !ok: it does not say.
func RetryAfter(err error) (after time.Duration, ok bool) {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, maxRetryAfter), ok
}
