// Package kube reads the objects of kubectl jettison from the API server, and runs commands in the
// pods of agents.
//
//	client.go  Client
//	flags.go   Flags: kubectl's flags of the cluster and the user
//	list.go    List: one list for each kind, in pages
//	follow.go  Follow: watches
//	exec.go    Exec: a command of the agent in its pod
//	tty.go     the terminal of a command
package kube

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Client is a client of the API server.
type Client struct {
	Namespace      string // of the agents' pods
	LeaseNamespace string

	config *rest.Config // of the core API
	core   rest.Interface
	// coordination serves Leases.
	coordination rest.Interface
	// watchCore and watchCoordination have no timeout.
	watchCore, watchCoordination rest.Interface
}

// objects has the types that are read.
var objects = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(s); err != nil { // only if two types had one name
			panic(err)
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

var parameters = runtime.NewParameterCodec(objects)

func newClient(c *rest.Config, namespace, leaseNamespace string) (*Client, error) {
	out := &Client{Namespace: namespace, LeaseNamespace: leaseNamespace}
	codecs := serializer.NewCodecFactory(objects).WithoutConversion()
	configFor := func(group schema.GroupVersion, path string) *rest.Config {
		config := rest.CopyConfig(c)
		config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &group, path, codecs
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		return config
	}
	core := configFor(v1.SchemeGroupVersion, "/api")
	coordination := configFor(coordinationv1.SchemeGroupVersion, "/apis")
	for _, client := range []struct {
		to     *rest.Interface
		config *rest.Config
		watch  bool
	}{{&out.core, core, false}, {&out.coordination, coordination, false},
		{&out.watchCore, core, true}, {&out.watchCoordination, coordination, true}} {
		config := client.config
		if client.watch {
			config = rest.CopyConfig(config)
			config.Timeout = 0
		}
		made, err := rest.RESTClientFor(config)
		if err != nil {
			return nil, fmt.Errorf("create Kubernetes client: %w", err)
		}
		*client.to = made
	}
	out.config = core
	return out, nil
}
