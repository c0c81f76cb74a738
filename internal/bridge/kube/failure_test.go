package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What an answer means for whoever asks again.
func TestMeans(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	going := apierrors.NewForbidden(pods, "a", errors.New("its namespace is being terminated"))
	going.ErrStatus.Details.Causes = append(going.ErrStatus.Details.Causes, metav1.StatusCause{Type: v1.NamespaceTerminatingCause})
	status := func(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }
	for _, c := range []struct {
		err  error
		want Failure
	}{
		{nil, None},
		{context.DeadlineExceeded, Away},
		{errors.New("connection refused"), Away},
		{apierrors.NewConflict(pods, "a", errors.New("modified")), Changed},
		{apierrors.NewNotFound(pods, "a"), NotFound},
		{going, NotFound},
		{apierrors.NewForbidden(pods, "a", errors.New("no role")), Refused},
		{status(http.StatusUnprocessableEntity), Refused}, // as an admission policy denies
		{status(http.StatusBadRequest), Refused},
		{apierrors.NewTooManyRequests("later", 7), Away},
		{status(http.StatusServiceUnavailable), Away},
		{status(http.StatusUnauthorized), Away},
		{status(http.StatusInternalServerError), Failing},
		{status(http.StatusGatewayTimeout), Failing},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("patch pods/status a: %w", err)
		}
		if got := Means(err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	if after, ok := AskAgain(fmt.Errorf("wrapped: %w", apierrors.NewTooManyRequests("later", 7))); !ok || after != 7*time.Second {
		t.Errorf("ask again after %v, %v", after, ok)
	}
	if _, ok := AskAgain(errors.New("none")); ok {
		t.Error("an error that says no time")
	}
}
