// Package kube is the bridge's client of a cluster's API: the few requests that it makes, each
// bounded in time and made once, for whoever asks knows when to ask again. It links the types of
// two groups of the API and no more: a clientset of all would be most of the bridge's memory.
//
//	kube.go    Client, and where the API is
//	request.go one request: a pod, its status, an event
//	pods.go    all pods of one node, listed pod by pod and watched
//	nodes.go   nodes, their status, and the Leases that tell their load
//	failure.go what an error means for whoever asks again
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
	"k8s.io/client-go/tools/clientcmd"
)

// Rates of requests, watches not counted. They keep a bridge that has a defect from being a
// cluster's.
const (
	requestsPerSecond = 20
	burst             = 60
)

// Config is how the API is reached: by a kubeconfig's current context, or, without one, by the
// token and the addresses that a pod is given.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the cluster's API: %w: in no pod of a cluster name a --kubeconfig",
				err)
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

// TokenNode is the node that a configuration's token is bound to, by its own claim, which the API
// server has signed and checks; empty: it names none, or there is no token
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

// Client asks the API. It may be used by several goroutines at once.
type Client struct {
	timeout            time.Duration
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
		own.QPS, own.Burst, own.Timeout = requestsPerSecond, burst, 0
		if own.ContentType == "" {
			own.ContentType, own.AcceptContentTypes = runtime.ContentTypeProtobuf,
				runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		}
		return own
	}
	shared, err := rest.HTTPClientFor(of(v1.SchemeGroupVersion, "/api"))
	if err != nil {
		return nil, fmt.Errorf("make a client of the API: %w", err)
	}
	out := Client{timeout: cmp.Or(c.Timeout, requestTimeout)}
	if out.core, err = rest.RESTClientForConfigAndClient(of(v1.SchemeGroupVersion, "/api"),
		shared); err != nil {
		return nil, fmt.Errorf("make a client of the API: %w", err)
	}
	out.coordination, err = rest.RESTClientForConfigAndClient(of(coordinationv1.SchemeGroupVersion,
		"/apis"), shared)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API: %w", err)
	}
	return &out, nil
}
