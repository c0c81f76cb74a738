// Package bridge is what jettison-bridge does: it ties one node's agent to the cluster's API. The
// agent stays as it is without it, and neither waits for it.
//
//	command.go  Command: jettison-bridge run
//	bridge.go   Run: what runs, and how it ends
//	version.go  what the API server can do
//
// What it is made of, each with fields of its own:
//
//	verdict   what the API has to be told, purely
//	kube      the requests to the API
//	nodepods  the node's pods, for the agent
//	deliver   the agent's evictions, for the API
//	nodeside  conditions, load and findings of the node, for the API
//	cleanup   taking away what bridges wrote
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"jettison/api"
	"jettison/internal/bridge/deliver"
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/nodepods"
	"jettison/internal/bridge/nodeside"
)

// Options of Run.
type Options struct {
	Node    string // its name at the API
	Socket  string // of the agent; empty: api.DefaultSocket
	Version string // the bridge's
	// EvictedStatus has pods that were evicted made Failed, and those that were chosen marked. Else
	// there are events alone.
	EvictedStatus bool
	// LeaseNamespace is where the node's load is told; empty: nowhere.
	LeaseNamespace string
	// TransitionPeriod is evictionPressureTransitionPeriod, as the kubelet has it.
	TransitionPeriod time.Duration
	API              *rest.Config
	Log              *slog.Logger
}

// Validate says which of them is wrong.
func (o *Options) Validate() error {
	if o.Node == "" {
		return errors.New("the node's name is not known: set NODE_NAME, or --node-name")
	}
	if wrong := validation.IsDNS1123Subdomain(o.Node); len(wrong) > 0 {
		return fmt.Errorf("node name %.64q: %s", o.Node, wrong[0])
	}
	if o.API != nil {
		// Else the agent would lose what it knows of its own node's pods for those of another.
		if node := kube.TokenNode(o.API); node != "" && node != o.Node {
			return fmt.Errorf("node name %.64q: the token is of node %.64q", o.Node, node)
		}
	}
	if o.TransitionPeriod < 0 {
		return fmt.Errorf("transition period %v: want 0 or more", o.TransitionPeriod)
	}
	if o.LeaseNamespace == "" {
		return nil
	}
	return kube.ValidateLeaseNamespace(o.LeaseNamespace)
}

// Run ties the agent to the API until its context ends. Neither has to be there at the start, or to
// stay.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	client, err := kube.New(o.API, o.Version)
	if err != nil {
		return err
	}
	agent := api.New(api.Options{Socket: o.Socket})
	var deliverer *deliver.Deliverer
	pods := nodepods.New(nodepods.Options{
		Source: client.NodePods(o.Node, nodepods.NewListReducer), Agent: agent,
		Changed: func() { deliverer.Changed() }, Log: o.Log,
	})
	server := &server{client: client, status: o.EvictedStatus, log: o.Log}
	deliverer = deliver.New(deliver.Options{
		Node: o.Node, Records: agent, Pods: pods, API: reducingAPI{client}, WriteStatus: server.writeStatus, Log: o.Log,
	})
	side := nodeside.New(nodeside.Options{
		Node: o.Node, Namespace: o.LeaseNamespace, Period: o.TransitionPeriod, Agent: agent, API: client,
		CanRestrict: server.canRestrict,
		Log:         o.Log,
	})
	o.Log.Info("started", "version", o.Version, "node", o.Node, "address", o.API.Host,
		"evictedStatus", o.EvictedStatus)
	var parts sync.WaitGroup
	for _, run := range []func(context.Context){pods.Run, deliverer.Run, side.Run} {
		parts.Go(func() { run(ctx) })
	}
	parts.Wait()
	o.Log.Info("ended")
	return nil
}

// spare is the API of which no more of a pod is held than the copy has, while its eviction is told:
// an author makes one as large as he likes.
type reducingAPI struct{ *kube.Client }

func (s reducingAPI) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	return reduced(s.Client.Pod(ctx, namespace, name))
}

func (s reducingAPI) PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod,
	error) {
	return reduced(s.Client.PatchPodStatus(ctx, namespace, name, body))
}

func reduced(p *v1.Pod, err error) (*v1.Pod, error) {
	if p != nil {
		p = nodepods.Reduce(p)
	}
	return p, err
}
