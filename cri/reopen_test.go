package cri

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
)

func TestReopenContainerLog(t *testing.T) {
	r := critest.Start(t)
	r.Containers = []*runtimev1.Container{{Id: "runs", State: runtimev1.ContainerState_CONTAINER_RUNNING}, {Id: "ended", State: runtimev1.ContainerState_CONTAINER_EXITED}}
	c := dial(t, r.Endpoint())
	if err := c.ReopenContainerLog(t.Context(), "runs"); err != nil {
		t.Error(err)
	}
	if err := c.ReopenContainerLog(t.Context(), "ended"); err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "reopen log of container ended at runtime unix://") {
		t.Errorf("error for an ended container = %v", err)
	}
	if err := c.ReopenContainerLog(t.Context(), "other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("error for an unknown container = %v, want ErrNotFound", err)
	}
	r.Change(func() { r.Fail["ReopenContainerLog"] = status.Error(codes.Unknown, "disk full") })
	if err := c.ReopenContainerLog(t.Context(), "runs"); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error of a failed reopen = %v", err)
	}
	if err := c.ReopenContainerLog(t.Context(), "other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("error for an unknown container that the runtime reports as Unknown, as CRI-O does = %v, want ErrNotFound", err)
	}
	c.timeouts.list = 1
	r.Change(func() { delete(r.Fail, "ReopenContainerLog"); r.Hang["ReopenContainerLog"] = true })
	if err := c.ReopenContainerLog(t.Context(), "runs"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error with a hung runtime = %v, want DeadlineExceeded", err)
	}
	if got := r.Calls("ReopenContainerLog"); got < 4 {
		t.Errorf("ReopenContainerLog calls = %d, not as expected", got)
	}
	if len(r.Reopens) != 1 || r.Reopens[0] != "runs" {
		t.Errorf("reopened logs = %v, not as expected", r.Reopens)
	}
}
