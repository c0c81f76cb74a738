package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Pod gets one pod; nil: there is none of that name.
func (c *Client) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	var out v1.Pod
	o := object{resource: "pods", namespace: namespace, name: name}
	if namespace == "" { // which the request finds out only when it is made
		return nil, fmt.Errorf("get %v: %w", o, errNoName)
	}
	err := c.do(ctx, "get "+o.String(), c.core.Get().Namespace(namespace).Resource(o.resource).Name(
		name), &out)
	switch {
	case apierrors.IsNotFound(err) && Classify(err) == NotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &out, nil
}

// PatchPodStatus applies a strategic merge patch to a pod's status, and returns the pod as it is
// then. It waits as long as webhooks may take.
func (c *Client) PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod,
	error) {
	var out v1.Pod
	o := object{"pods", namespace, name, "status"}
	if err := c.patch(WithWebhookTimeout(ctx), c.core, types.StrategicMergePatchType, o, body,
		&out); err != nil {
		return nil, err
	}
	return &out, nil
}

// CreateEvent makes an event. One that is there already by its name was made before, so that is no
// error.
func (c *Client) CreateEvent(ctx context.Context, e *v1.Event) error {
	err := c.do(ctx, "create events "+e.Namespace+"/"+e.Name,
		c.core.Post().Namespace(e.Namespace).Resource("events").Body(e), nil)
	if apierrors.IsAlreadyExists(err) && Classify(err) == Conflict { // the API server says so itself
		return nil
	}
	return err
}

// Minor is the API server's minor version of Kubernetes 1.
func (c *Client) Minor(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	text, err := c.core.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("get the API server's version: %w", err)
	}
	var said struct{ Major, Minor string }
	if err := json.Unmarshal(text, &said); err != nil {
		return 0, fmt.Errorf("get the API server's version: %w", err)
	}
	// some clouds' versions end in a plus
	minor, err := strconv.Atoi(strings.TrimRight(said.Minor, "+"))
	if err != nil || said.Major != "1" {
		return 0, fmt.Errorf("get the API server's version: it says %q.%q", said.Major, said.Minor)
	}
	return minor, nil
}

// patientLimit is for a request that was not answered within requestLimit: a webhook may take 30 s
// (pkg/apis/admissionregistration/validation, v1.36.3), and who gives up sooner never has it done.
const webhookTimeout = 40 * time.Second

type webhookTimeoutKey struct{}

// Patiently has requests be waited for as long as webhooks may take.
func WithWebhookTimeout(ctx context.Context) context.Context {
	return context.WithValue(ctx, webhookTimeoutKey{}, true)
}

// Patient tells that requests are.
func HasWebhookTimeout(ctx context.Context) bool { return ctx.Value(webhookTimeoutKey{}) != nil }

// requestLimit is for one request, its answer included, where the configuration names no other
// timeout. A watch has none.
const requestTimeout = 10 * time.Second

// errNoName is wrapped by the error of a request that cannot be made, for no object can have such a
// name.
var errNoName = errors.New("no object has such a name")

// do makes one request, once, and reads its answer into an object; nil: it is not read.
func (c *Client) do(ctx context.Context, what string, request *rest.Request,
	into runtime.Object) error {
	if err := request.Error(); err != nil {
		return fmt.Errorf("%s: %w: %w", what, errNoName, err)
	}
	limit := c.timeout
	if HasWebhookTimeout(ctx) {
		limit = max(limit, webhookTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result := request.MaxRetries(0).Do(ctx)
	err := result.Error()
	if err == nil && into != nil {
		err = result.Into(into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// patch makes one PATCH of an object or of a part of it.
func (c *Client) patch(
	ctx context.Context, group *rest.RESTClient, kind types.PatchType, o object, body []byte,
	into runtime.Object,
) error {
	request := group.Patch(kind).NamespaceIfScoped(o.namespace, o.namespace != "").Resource(
		o.resource).Name(o.name).Body(body)
	if o.subresource != "" {
		request = request.SubResource(o.subresource)
	}
	return c.do(ctx, "patch "+o.String(), request, into)
}

// object is one object of the API, or a part of it.
type object struct{ resource, namespace, name, subresource string }

func (o object) String() string {
	name := o.name
	if o.namespace != "" {
		name = o.namespace + "/" + o.name
	}
	if o.subresource != "" {
		return o.resource + "/" + o.subresource + " " + name
	}
	return o.resource + " " + name
}
