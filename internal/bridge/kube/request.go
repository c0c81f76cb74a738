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

// Pod returns one pod, or nil if it does not exist.
func (c *Client) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	var out v1.Pod
	o := object{resource: "pods", namespace: namespace, name: name}
	if namespace == "" { // the request would fail only when it is sent
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

// PatchPodStatus applies a strategic merge patch to a pod's status and returns the resulting pod.
func (c *Client) PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod,
	error) {
	var out v1.Pod
	o := object{"pods", namespace, name, "status"}
	if err := c.patch(ctx, c.core, types.StrategicMergePatchType, o, body, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// CreateEvent creates an event. It returns nil if an event of that name already exists.
func (c *Client) CreateEvent(ctx context.Context, e *v1.Event) error {
	err := c.do(ctx, "create events "+e.Namespace+"/"+e.Name,
		c.core.Post().Namespace(e.Namespace).Resource("events").Body(e), nil)
	if apierrors.IsAlreadyExists(err) && Classify(err) == Conflict { // not from a proxy
		return nil
	}
	return err
}

// Minor returns the API server's minor version of Kubernetes 1.
func (c *Client) Minor(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	text, err := c.core.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("get the API server's version: %w", err)
	}
	var version struct{ Major, Minor string }
	if err := json.Unmarshal(text, &version); err != nil {
		return 0, fmt.Errorf("get the API server's version: %w", err)
	}
	// versions of some cloud providers end in "+"
	minor, err := strconv.Atoi(strings.TrimRight(version.Minor, "+"))
	if err != nil || version.Major != "1" {
		return 0, fmt.Errorf("get the API server's version: unexpected version %q.%q", version.Major, version.Minor)
	}
	return minor, nil
}

// webhookTimeout is the timeout of requests that webhooks may delay. A webhook may take 30 s
// (pkg/apis/admissionregistration/validation, v1.36.3), and with a shorter timeout the request
// would never succeed. Patches and new Leases have it, and other requests with WithWebhookTimeout.
const webhookTimeout = 40 * time.Second

type webhookTimeoutKey struct{}

// WithWebhookTimeout returns a context that gives requests a timeout long enough for webhooks.
func WithWebhookTimeout(ctx context.Context) context.Context {
	return context.WithValue(ctx, webhookTimeoutKey{}, true)
}

// HasWebhookTimeout reports whether ctx is from WithWebhookTimeout.
func HasWebhookTimeout(ctx context.Context) bool { return ctx.Value(webhookTimeoutKey{}) != nil }

// requestTimeout limits one request including its response, unless the configuration has a timeout.
// It does not apply to watches.
const requestTimeout = 10 * time.Second

// errNoName: the request contains a name that no object can have.
var errNoName = errors.New("invalid object name")

// do makes one request and decodes its response into into; nil: the response is not decoded. action
// begins with verb and resource.
func (c *Client) do(ctx context.Context, action string, request *rest.Request,
	into runtime.Object) error {
	if err := request.Error(); err != nil {
		return fmt.Errorf("%s: %w: %w", action, errNoName, err)
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
	if c.Count != nil {
		verb, rest, _ := strings.Cut(action, " ")
		resource, _, _ := strings.Cut(rest, " ")
		c.Count(verb, resource, Classify(err))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// patch makes one PATCH of an object or of a subresource.
func (c *Client) patch(
	ctx context.Context, group *rest.RESTClient, kind types.PatchType, o object, body []byte,
	into runtime.Object,
) error {
	request := group.Patch(kind).NamespaceIfScoped(o.namespace, o.namespace != "").Resource(
		o.resource).Name(o.name).Body(body)
	if o.subresource != "" {
		request = request.SubResource(o.subresource)
	}
	return c.do(WithWebhookTimeout(ctx), "patch "+o.String(), request, into)
}

// object identifies an object of the API, or its subresource.
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
