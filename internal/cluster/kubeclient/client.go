// Package kubeclient connects the cluster-wide programs to the API server and elects the replica
// that may act.
//
//	client.go  configuration and clients
//	batch.go   connections that are read in batches
//	clock.go   the API server's clock
//	evict.go   evictions without retries
//	guard.go   clients that send only while this replica leads
//	leader.go  Leader: one replica acts, and stops before another one starts
//	lock.go    the Lease of the election
//	reach.go   Reach: whether the API server answers
package kubeclient

import (
	"context"
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/internal/kube/kubeconfig"
	"jettison/internal/kube/kubefeed"
)

// Options configures Config.
type Options struct {
	Kubeconfig string  // empty: see kubeconfig.Load
	QPS        float32 // requests per second, without watches; below 0: no limit
	Burst      int
	// UserAgent is "PROGRAM/VERSION". managedFields names the program by the part before the slash.
	UserAgent string
}

// KubeconfigUsage describes the flag --kubeconfig.
const KubeconfigUsage = "kubeconfig `file` (default: $KUBECONFIG, in-cluster, ~/.kube/config)"

// Config returns the client configuration. It does not connect.
func Config(o Options) (*rest.Config, error) {
	c, err := kubeconfig.Load(o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("configure the API client: %w", err)
	}
	c.QPS, c.Burst, c.UserAgent = o.QPS, o.Burst, o.UserAgent
	return c, nil
}

// New returns a client with its own rate limit, so that clients do not delay each other. It adds
// part to the user agent, and uses protobuf unless the configuration names a content type. timeout
// bounds each request; 0: only the limits of kubefeed.LimitRequests do.
func New(c *rest.Config, part string, timeout time.Duration) (*kubernetes.Clientset, error) {
	copied := rest.CopyConfig(c)
	// rest.AddUserAgent would replace the program's name
	copied.Timeout, copied.UserAgent = timeout, c.UserAgent+" "+part
	if copied.ContentType == "" {
		copied.ContentType, copied.AcceptContentTypes = runtime.ContentTypeProtobuf,
			runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	}
	copied.Wrap(kubefeed.LimitRequests)
	client, err := kubernetes.NewForConfig(copied)
	if err != nil {
		return nil, fmt.Errorf("create the API client: %w", err)
	}
	return client, nil
}

// wrapConnections returns a configuration for clients with wrapped connections. Clients of the
// returned configuration share no connection with those of c.
func wrapConnections(c *rest.Config, wrap func(net.Conn) net.Conn) *rest.Config {
	copied := rest.CopyConfig(c)
	dial := copied.Dial
	if dial == nil {
		// client-go's defaults
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	copied.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	return copied
}
