// Package nodes is `jettison-cluster nodes`: node lifecycle and taint eviction of a cluster that is
// watched. One loop owns the state of the cores for as long as this replica leads; it decides when
// something changes or a deadline has come, and hands what is to be written to workers, which tell
// it how that went.
//
//	command.go  Command: jettison-cluster nodes
//	nodes.go    Options, Run: what runs, and how it ends
//	loop.go     the loop: when it decides, and on what
//	queue.go    what waits to be written
//	said.go     what is logged of it; what is only said
//	events.go   events of nodes and pods
//	metrics.go  what is counted
//	serve.go    health, metrics, status
//	tell.go     the status, and what explains it
package nodes

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/internal/cluster/config"
	"jettison/internal/cluster/fencing"
	"jettison/internal/cluster/kubeclient"
	"jettison/internal/cluster/mirror"
	"jettison/internal/cluster/writes"
)

// Rivals are the names by which managedFields know programs that have the same controllers: the
// user agent up to its slash.
var Rivals = []string{"kube-controller-manager", "k3s", "rke2", "kubelite", "k0s", "hyperkube",
	"openshift-kube-controller-manager"}

// readGap is how often watches are read. What they say is so much later at most.
const readGap = 20 * time.Millisecond

// Options of Run.
type Options struct {
	Config  *config.Cluster
	API     *rest.Config
	Version string
	Log     *slog.Logger
}

// looked is what the parts of Run are made of.
type looked struct {
	Config *config.Cluster
	Mirror *mirror.Mirror
	Writer *writes.Writer
	Check  func(ctx context.Context, n *v1.Node) (dead bool, err error)
	Log    *slog.Logger
}

// parts are what outlasts a term of leading.
type parts struct {
	o       looked
	events  *events
	metrics *metrics
	asks    chan func(*loop)
	dates   kubeclient.Dates
	// when the loop went round last, nanoseconds since 1970; 0: it does not run
	beat   atomic.Int64
	leader *kubeclient.Leader // nil: this replica acts without being elected
}

// Run does what the configuration says until its context ends.
func Run(ctx context.Context, o Options) error {
	p, err := newParts(&o)
	if err != nil {
		return err
	}
	return p.run(ctx, &o)
}

// newParts makes what reads, and who is elected.
func newParts(o *Options) (*parts, error) {
	p := &parts{asks: make(chan func(*loop)), metrics: newMetrics(o.Version)}
	reads, err := kubeclient.New(p.dates.Dated(kubeclient.Gathered(o.API, readGap)), "reads", 0)
	if err != nil {
		return nil, err
	}
	p.o = looked{Config: o.Config, Log: o.Log, Mirror: mirror.New(mirror.From(reads, Rivals, o.Log))}
	p.o.Check = fencing.New(o.Config.FenceCommand, o.Config.FenceURL, o.Config.FenceTimeout)
	elects := o.Config.LeaderElect && o.Config.Mode != config.Observe
	if elects {
		election := o.Config.Election()
		client, err := kubeclient.New(o.API, "leader-election", election.RequestTimeout())
		if err != nil {
			return nil, err
		}
		if p.leader, err = kubeclient.NewLeader(client.CoordinationV1(), election, o.Log); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// run connects what writes, and runs everything.
func (p *parts) run(ctx context.Context, o *Options) error {
	api := rest.CopyConfig(o.API)
	switch {
	case o.Config.Mode == config.Observe:
		// it writes nothing, whatever the code above it does
		api = kubeclient.Guarded(api, func() bool { return false })
	case p.leader != nil:
		api = kubeclient.Guarded(api, p.leader.Holds)
	}
	writer, err := kubeclient.New(api, "writes", 0)
	if err != nil {
		return err
	}
	again, err := kubeclient.New(o.API, "reads-again", 0) // a write waits for no read of another
	if err != nil {
		return err
	}
	p.o.Writer = writes.New(writer, again, o.Config.Budget())
	var client kubernetes.Interface
	if client, err = kubeclient.New(api, "events", 0); err != nil {
		return err
	}
	var listener net.Listener
	if o.Config.Address != "" {
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", o.Config.Address); err != nil {
			return fmt.Errorf("serve the status: %w", err)
		}
	}
	o.Log.Info("started", "version", o.Version, "mode", o.Config.Mode, "api", o.API.Host,
		"address", o.Config.Address,
		"elected", p.leader != nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	p.events = newEvents(ctx, client, o.Log)
	beside.Go(func() { p.o.Mirror.Run(ctx) })
	beside.Go(func() { p.serve(ctx, listener) })
	defer o.Log.Info("ended")
	if p.leader == nil {
		p.work(ctx)
		return nil
	}
	return p.leader.Run(ctx, p.work)
}

// work is one term of leading.
func (p *parts) work(ctx context.Context) {
	p.metrics.leads.Set(1)
	defer p.metrics.leads.Set(0)
	defer p.beat.Store(0)
	p.o.Log.Info("it leads", "mode", p.o.Config.Mode)
	newLoop(p).run(ctx)
	p.o.Log.Info("it leads no more")
}
