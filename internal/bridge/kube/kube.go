// Package kube is the bridge's client of a cluster's API: the few requests that it makes, each bounded in time and made once, for whoever
// asks knows when to ask again. It links the types of two groups of the API and no more: a clientset of all would be most of the bridge's
// memory.
//
//	kube.go    Client, and where the API is
//	pods.go    pods of one node, and their status
//	list.go    a list of pods, read pod by pod
//	nodes.go   nodes, their status, and the Leases that tell their load
//	events.go  events
//	failure.go what an error means for whoever asks again
package kube

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patientLimit is for a request that was not answered within requestLimit: a webhook may take 30 s
// (pkg/apis/admissionregistration/validation, v1.36.3), and who gives up sooner never has it done.
const patientLimit = 40 * time.Second

type patiently struct{}

// Patiently has requests be waited for as long as webhooks may take.
func Patiently(ctx context.Context) context.Context { return context.WithValue(ctx, patiently{}, true) }

// Patient tells that requests are.
func Patient(ctx context.Context) bool { return ctx.Value(patiently{}) != nil }

// requestLimit is for one request, its answer included, where the configuration names no other timeout. A watch has none.
const requestLimit = 10 * time.Second

// Rates of requests, watches not counted. They keep a bridge that has a defect from being a cluster's.
const (
	perSecond = 20
	burst     = 60
)

// Config is how the API is reached: by a kubeconfig's current context, or, without one, by the token and the addresses that a pod is given.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the cluster's API: %w: in no pod of a cluster name a --kubeconfig", err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		_, err = rest.TLSConfigFor(c)
	}
	if err == nil {
		_, _, err = rest.DefaultServerUrlFor(c)
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster's API by %s: %w", kubeconfig, err)
	}
	return c, nil
}

// TokenNode is the node that a configuration's token is bound to, by its own claim, which the API server has signed and checks; empty: it
// names none, or there is no token (pkg/serviceaccount/claims.go, v1.36.3).
func TokenNode(c *rest.Config) string {
	token := c.BearerToken
	if c.BearerTokenFile != "" {
		if text, err := os.ReadFile(c.BearerTokenFile); err == nil {
			token = strings.TrimSpace(string(text))
		}
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Kubernetes struct{ Node struct{ Name string } } `json:"kubernetes.io"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return claims.Kubernetes.Node.Name
}

// Client asks the API. It may be used by several goroutines at once.
type Client struct {
	limit              time.Duration
	core, coordination *rest.RESTClient
}

// New makes a Client. It connects to nothing yet. version is the bridge's, for the API's audit.
func New(c *rest.Config, version string) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make a client of the API: %w", err)
		}
	}
	of := func(group schema.GroupVersion, root string) *rest.Config {
		own := rest.CopyConfig(c)
		own.GroupVersion, own.APIPath = &group, root
		own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		own.UserAgent = "jettison-bridge/" + version
		own.QPS, own.Burst, own.Timeout = perSecond, burst, 0
		if own.ContentType == "" {
			own.ContentType, own.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		}
		return own
	}
	shared, err := rest.HTTPClientFor(of(v1.SchemeGroupVersion, "/api"))
	if err != nil {
		return nil, fmt.Errorf("make a client of the API: %w", err)
	}
	out := Client{limit: cmp.Or(c.Timeout, requestLimit)}
	if out.core, err = rest.RESTClientForConfigAndClient(of(v1.SchemeGroupVersion, "/api"), shared); err != nil {
		return nil, fmt.Errorf("make a client of the API: %w", err)
	}
	out.coordination, err = rest.RESTClientForConfigAndClient(of(coordinationv1.SchemeGroupVersion, "/apis"), shared)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API: %w", err)
	}
	return &out, nil
}

// errNoName is wrapped by the error of a request that cannot be made, for no object can have such a name.
var errNoName = errors.New("no object has such a name")

// do makes one request, once, and reads its answer into an object; nil: it is not read.
func (c *Client) do(ctx context.Context, what string, request *rest.Request, into runtime.Object) error {
	if err := request.Error(); err != nil {
		return fmt.Errorf("%s: %w: %w", what, errNoName, err)
	}
	limit := c.limit
	if Patient(ctx) {
		limit = max(limit, patientLimit)
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
	ctx context.Context, group *rest.RESTClient, kind types.PatchType, o object, body []byte, into runtime.Object,
) error {
	request := group.Patch(kind).NamespaceIfScoped(o.namespace, o.namespace != "").Resource(o.resource).Name(o.name).Body(body)
	if o.part != "" {
		request = request.SubResource(o.part)
	}
	return c.do(ctx, "patch "+o.String(), request, into)
}

// object is one object of the API, or a part of it.
type object struct{ resource, namespace, name, part string }

func (o object) String() string {
	name := o.name
	if o.namespace != "" {
		name = o.namespace + "/" + o.name
	}
	if o.part != "" {
		return o.resource + "/" + o.part + " " + name
	}
	return o.resource + " " + name
}

// Minor is the API server's minor version of Kubernetes 1.
func (c *Client) Minor(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	text, err := c.core.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("get the API server's version: %w", err)
	}
	var said struct{ Major, Minor string }
	if err := json.Unmarshal(text, &said); err != nil {
		return 0, fmt.Errorf("get the API server's version: %w", err)
	}
	minor, err := strconv.Atoi(strings.TrimRight(said.Minor, "+")) // some clouds' versions end in a plus
	if err != nil || said.Major != "1" {
		return 0, fmt.Errorf("get the API server's version: it says %q.%q", said.Major, said.Minor)
	}
	return minor, nil
}
