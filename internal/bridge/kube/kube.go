// Package kube is the bridge's client of the Kubernetes API. It makes each request once, with a
// timeout; callers decide on retries. It links only two groups of API types: a full clientset would
// need most of the bridge's memory.
//
//	kube.go     Client, and the address of the API server
//	request.go  single requests: a pod, its status, an event
//	pods.go     all pods of one node, listed pod by pod and watched
//	nodes.go    nodes, their status, and the Leases with their load
//	failure.go  classifies errors for callers
package kube

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"jettison/internal/kube/kubeconfig"
	"jettison/internal/kube/kubefeed"
)

// Rate limits of requests, watches excluded. They protect the cluster from a defect in the bridge.
const (
	requestsPerSecond = 20
	burst             = 60
)

// Config returns the client configuration: the current context of the kubeconfig at path or, if path
// is empty, the pod's service account. A bridge does not search for other credentials, because its
// own are bound to its node.
func Config(path string) (*rest.Config, error) {
	if path == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server: %w: outside a pod use --kubeconfig",
				err)
		}
		return c, nil
	}
	c, err := find(path)
	if err != nil {
		return nil, fmt.Errorf("find the API server in %s: %w", path, err)
	}
	return c, nil
}

// ConfigOfUser returns the client configuration for a command that an operator runs: see
// kubeconfig.Load.
func ConfigOfUser(path string) (*rest.Config, error) {
	c, err := find(path)
	if err != nil && path != "" {
		return nil, fmt.Errorf("find the API server in %s: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	return c, nil
}

// find returns a valid client configuration.
func find(path string) (*rest.Config, error) {
	c, err := kubeconfig.Load(path)
	if err == nil {
		_, err = rest.TLSConfigFor(c)
	}
	if err == nil {
		_, _, err = rest.DefaultServerUrlFor(c)
	}
	return c, err
}

// TokenNode returns the node that the configuration's token is bound to, from a claim that the API
// server signs and verifies; empty: the token names no node, or there is no token
// (pkg/serviceaccount/claims.go, v1.36.3).
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

// Client makes requests to the API server. It is safe for concurrent use.
type Client struct {
	// Count, if set, is called after each request except lists and watches of pods. verb and resource
	// are those of RBAC. Set it before the first request.
	Count func(verb, resource string, result Failure)

	timeout            time.Duration
	core, coordination *rest.RESTClient
}

// New returns a Client without connecting. version is the bridge's, for the API server's audit log.
func New(c *rest.Config, version string) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("create Kubernetes client: %w", err)
		}
	}
	configFor := func(group schema.GroupVersion, root string) *rest.Config {
		config := rest.CopyConfig(c)
		config.GroupVersion, config.APIPath = &group, root
		config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		config.UserAgent = "jettison-bridge/" + version
		config.QPS, config.Burst, config.Timeout = requestsPerSecond, burst, 0
		config.Wrap(kubefeed.LimitRequests)
		if config.ContentType == "" {
			config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf,
				runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		}
		return config
	}
	shared, err := rest.HTTPClientFor(configFor(v1.SchemeGroupVersion, "/api"))
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	out := Client{timeout: cmp.Or(c.Timeout, requestTimeout)}
	if out.core, err = rest.RESTClientForConfigAndClient(configFor(v1.SchemeGroupVersion, "/api"),
		shared); err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	out.coordination, err = rest.RESTClientForConfigAndClient(configFor(coordinationv1.SchemeGroupVersion,
		"/apis"), shared)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return &out, nil
}
