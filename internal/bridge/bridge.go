// Package bridge implements jettison-bridge, which connects one node's agent to the Kubernetes API.
// The agent works without it, and neither waits for the other.
//
//	command.go  Command: jettison-bridge run
//	bridge.go   Run: starts the parts and waits for their end
//	version.go  the API server's version
//
// Its packages:
//
//	verdict   decides what to write to the API; pure
//	kube      requests to the API server
//	nodepods  sends the node's pods to the agent
//	deliver   writes the agent's evictions to the API
//	nodeside  writes conditions, load and findings of the node to the API
//	scrape    counts requests and serves metrics
//	cleanup   removes the conditions and Leases of bridges
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
	"jettison/internal/bridge/scrape"
)

// Options configures Run.
type Options struct {
	Node    string // name of the node in the API
	Socket  string // the agent's socket; empty: api.DefaultSocket
	Version string // the bridge's version
	// EvictedStatus enables writing pod statuses: evicted pods are set to Failed, chosen ones get
	// the condition DisruptionTarget. Otherwise only events are sent.
	EvictedStatus bool
	// LeaseNamespace is the namespace of the Lease with the node's load; empty: no load is written.
	LeaseNamespace string
	// TransitionPeriod is the kubelet's evictionPressureTransitionPeriod.
	TransitionPeriod time.Duration
	// MetricsAddress is the address of the metrics server; empty: off.
	MetricsAddress string
	API            *rest.Config
	Log            *slog.Logger
}

// Validate returns an error that names the first invalid option.
func (o *Options) Validate() error {
	if o.Node == "" {
		return errors.New("node name unknown: set NODE_NAME or --node-name")
	}
	if wrong := validation.IsDNS1123Subdomain(o.Node); len(wrong) > 0 {
		return fmt.Errorf("node name %.64q: %s", o.Node, wrong[0])
	}
	if o.API != nil {
		// With another node's name the agent would replace its pods with those of another node.
		if node := kube.TokenNode(o.API); node != "" && node != o.Node {
			return fmt.Errorf("node name %.64q: the token is bound to node %.64q", o.Node, node)
		}
	}
	if o.TransitionPeriod < 0 {
		return fmt.Errorf("transition period %v: want 0 or more", o.TransitionPeriod)
	}
	if err := scrape.ValidateAddress(o.MetricsAddress); err != nil {
		return err
	}
	if o.LeaseNamespace == "" {
		return nil
	}
	return kube.ValidateLeaseNamespace(o.LeaseNamespace)
}

// Run connects the agent to the API until ctx ends. Both may be unreachable at the start and later.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	client, err := kube.New(o.API, o.Version)
	if err != nil {
		return err
	}
	var requests scrape.Requests
	client.Count = requests.Add
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
	metrics, err := scrape.Listen(ctx, o.MetricsAddress, &scrape.Source{
		Version: o.Version, Requests: &requests, Pending: deliverer.Pending,
	})
	if err != nil {
		return err
	}
	defer metrics.Close()
	//log: The bridge started.
	o.Log.Info("started", "version", o.Version, "node", o.Node, "address", o.API.Host,
		"evictedStatus", o.EvictedStatus)
	var parts sync.WaitGroup
	for _, run := range []func(context.Context){pods.Run, deliverer.Run, side.Run} {
		parts.Go(func() { run(ctx) })
	}
	parts.Wait()
	//log: The bridge ended after a signal.
	o.Log.Info("ended")
	return nil
}

// reducingAPI is a client that reduces pods in responses as the copy does, because a pod may have
// any size.
type reducingAPI struct{ *kube.Client }

func (s reducingAPI) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	return reduceResult(s.Client.Pod(ctx, namespace, name))
}

func (s reducingAPI) PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod,
	error) {
	return reduceResult(s.Client.PatchPodStatus(ctx, namespace, name, body))
}

func reduceResult(p *v1.Pod, err error) (*v1.Pod, error) {
	if p != nil {
		p = nodepods.Reduce(p)
	}
	return p, err
}
