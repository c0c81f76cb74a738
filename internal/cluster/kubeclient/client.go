// Package kubeclient is how what a cluster has once reaches the cluster's API, and who of its
// replicas may act.
//
//	client.go  where the API is, and clients of it
//	gather.go  connections that are read seldom
//	date.go    what time it is there
//	evict.go   an eviction that is asked for once
//	guard.go   no write by who does not lead
//	leader.go  Leader: one replica acts, and has stopped before another begins
//	lock.go    the Lease that it is decided by
package kubeclient

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options of Config.
type Options struct {
	Kubeconfig string  // empty: the token and the addresses that a pod is given
	QPS        float32 // requests a second, watches not counted; below 0: no limit
	Burst      int
	// UserAgent is "PROGRAM/VERSION". The API server's managedFields name the program by what is
	// before the slash.
	UserAgent string
}

// Config is how the API is reached. It connects to nothing yet.
func Config(o Options) (*rest.Config, error) {
	var c *rest.Config
	var err error
	switch o.Kubeconfig {
	case "":
		if c, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("find the cluster's API: %w: in no pod of a cluster name a --kubeconfig",
				err)
		}
	default:
		if c, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig); err != nil {
			return nil, fmt.Errorf("find the cluster's API by %s: %w", o.Kubeconfig, err)
		}
	}
	c.QPS, c.Burst, c.UserAgent = o.QPS, o.Burst, o.UserAgent
	return c, nil
}

// New makes a client with a limit of requests of its own: what is told by one client never waits
// for what another has to tell. part is added to the user agent. Protobuf is spoken where the
// configuration names nothing else. timeout bounds each request; 0: whoever asks does.
func New(c *rest.Config, part string, timeout time.Duration) (*kubernetes.Clientset, error) {
	own := rest.CopyConfig(c)
	// rest.AddUserAgent would take the program's place
	own.Timeout, own.UserAgent = timeout, c.UserAgent+" "+part
	if own.ContentType == "" {
		own.ContentType, own.AcceptContentTypes = runtime.ContentTypeProtobuf,
			runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	}
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API: %w", err)
	}
	return client, nil
}
