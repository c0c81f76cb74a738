package kube

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// CreateEvent makes an event. One that is there already by its name was made before, so that is no error.
func (c *Client) CreateEvent(ctx context.Context, e *v1.Event) error {
	err := c.do(ctx, "create events "+e.Namespace+"/"+e.Name, c.core.Post().Namespace(e.Namespace).Resource("events").Body(e), nil)
	if apierrors.IsAlreadyExists(err) && Means(err) == Changed { // the API server says so itself
		return nil
	}
	return err
}
