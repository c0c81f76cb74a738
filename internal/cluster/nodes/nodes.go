// Package nodes implements `jettison-cluster nodes`: node lifecycle and taint eviction of a watched
// cluster. While this replica leads, one loop owns the state of the cores. It decides when
// something changes or a deadline passes, and queues the writes for workers, which report the
// results back.
//
//	command.go  Command: jettison-cluster nodes
//	nodes.go    Options, Run: components, start and shutdown
//	loop.go     the loop: when it decides, and on which input
//	queue.go    pending writes
//	pending.go  the pending writes to pods, by namespace
//	results.go  logs and counts results; logs planned writes in mode observe
//	events.go   events of nodes and pods
//	metrics.go  metrics
//	serve.go    HTTP server for health, metrics and status
//	status.go   answers of the status and explain endpoints
package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/cluster/taint"
	"jettison/internal/base/logthrottle"
	"jettison/internal/base/retry"
	"jettison/internal/cluster/config"
	"jettison/internal/cluster/fencing"
	"jettison/internal/cluster/kubeclient"
	"jettison/internal/cluster/mirror"
	"jettison/internal/cluster/preflight"
	"jettison/internal/cluster/writes"
)

// Rivals lists the programs with the same controllers, as managedFields name them: the user agent
// up to its slash.
var Rivals = []string{"kube-controller-manager", "k3s", "rke2", "kubelite", "k0s", "hyperkube",
	"openshift-kube-controller-manager"}

// readInterval is the interval between reads of watch connections. It bounds the added latency.
const readInterval = 20 * time.Millisecond

// The timeout of the reads that check the mode, and the pause after one that failed.
const (
	checkTimeout = 10 * time.Second
	checkPause   = time.Second
)

// Options configures Run.
type Options struct {
	Config  *config.Cluster
	API     *rest.Config
	Version string
	Log     *slog.Logger
}

// dependencies holds the components that the loop uses.
type dependencies struct {
	Config    *config.Cluster
	Mirror    *mirror.Mirror
	Writer    *writes.Writer
	CheckDead func(ctx context.Context, n *v1.Node) (dead bool, err error)
	Log       *slog.Logger
}

// controller holds the state that outlasts a term of leadership.
type controller struct {
	deps        dependencies
	events      *events
	metrics     *metrics
	queries     chan func(*loop)
	serverClock kubeclient.ServerClock
	clock       clock       // since the first step; zero: none yet
	pods        *taint.Core // of the last term
	// start of the last iteration of the loop; nil: the loop does not run
	lastLoop atomic.Pointer[time.Time]
	leader   *kubeclient.Leader // nil: this replica acts without election
	reader   kubernetes.Interface
	checked  atomic.Bool // a preflight check allowed the mode
}

// Run runs the controller until its context ends.
func Run(ctx context.Context, o Options) error {
	p, err := newController(&o)
	if err != nil {
		return err
	}
	return p.run(ctx, &o)
}

// newController creates the clients for reading and for leader election.
func newController(o *Options) (*controller, error) {
	p := &controller{queries: make(chan func(*loop)), metrics: newMetrics(o.Version),
		pods: taint.New(o.Config.Taint())}
	p.serverClock.WallClock = time.Now
	reads, err := kubeclient.New(p.serverClock.Track(kubeclient.BatchedReads(o.API, readInterval)), "reads", 0)
	if err != nil {
		return nil, err
	}
	p.deps = dependencies{Config: o.Config, Log: o.Log,
		Mirror: mirror.New(mirror.From(reads, Rivals, p.serverClock.FromServer, o.Log))}
	p.deps.CheckDead = fencing.New(o.Config.FenceCommand, o.Config.FenceURL, o.Config.FenceTimeout)
	useElection := o.Config.LeaderElect && o.Config.Mode != config.Observe
	if useElection {
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

// run creates the clients for writing, and runs all components until the context ends.
func (p *controller) run(ctx context.Context, o *Options) error {
	api := rest.CopyConfig(o.API)
	switch {
	case o.Config.Mode == config.Observe:
		// Enforced here, so that no caller can write.
		api = kubeclient.Guarded(api, func() bool { return false })
	case p.leader != nil:
		api = kubeclient.Guarded(api, p.leader.Holds)
	}
	writer, err := kubeclient.New(api, "writes", 0)
	if err != nil {
		return err
	}
	// a separate client, so that a write does not wait for the reads of others
	reader, err := kubeclient.New(o.API, "reads-again", 0)
	if err != nil {
		return err
	}
	p.reader = reader
	p.deps.Writer = writes.New(writer, reader, o.Config.PDBPeriod())
	var client kubernetes.Interface
	if client, err = kubeclient.New(api, "events", 0); err != nil {
		return err
	}
	var listener net.Listener
	if o.Config.Address != "" {
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", o.Config.Address); err != nil {
			return fmt.Errorf("listen on --address: %w", err)
		}
	}
	//log: The program connected its clients and serves its status. The key elected is true if the
	//  replicas elect a leader.
	o.Log.Info("node controller started", "version", o.Version, "mode", o.Config.Mode, "api", o.API.Host,
		"address", o.Config.Address,
		"elected", p.leader != nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	p.events = newEvents(ctx, client, o.Log)
	background.Go(func() { p.deps.Mirror.Run(ctx) })
	background.Go(func() { p.serve(ctx, listener) })
	//log: The program ends.
	defer o.Log.Info("node controller stopped")
	if refusal := p.preflight(ctx); refusal != nil {
		return refusal
	}
	p.checked.Store(true)
	if p.leader == nil {
		p.lead(ctx)
		return nil
	}
	return p.leader.Run(ctx, func(term context.Context) {
		if p.awaitAllowed(term) {
			p.lead(term)
		}
	})
}

// awaitAllowed checks the mode again at a takeover, and waits while it is refused: the operator may be
// changing the flags of kube-controller-manager. The replica keeps the Lease, because the check would
// refuse the others, too. It returns false if the term ended.
func (p *controller) awaitAllowed(term context.Context) bool {
	log := logthrottle.New(p.deps.Log)
	defer func() {
		p.checked.Store(true)
		p.metrics.held.Set(0)
	}()
	for {
		refusal := p.preflight(term)
		if refusal == nil {
			return term.Err() == nil
		}
		p.checked.Store(false)
		p.metrics.held.Set(1)
		log.Repeat("", func() {
			//log: This replica has taken over, but must not run in its mode. It is not ready and writes
			//  nothing until a check allows the mode. It checks every ten seconds.
			//do: Follow error: usually, disable the two controllers of kube-controller-manager.
			log.Error("mode refused, waiting", "mode", p.deps.Config.Mode, "error", refusal)
		})
		if !retry.Sleep(term, rivalCheckPeriod) {
			return false
		}
	}
}

// preflight returns why this replica must not run in its mode; nil: it may, or the context ended. It
// retries until the API server answers.
func (p *controller) preflight(ctx context.Context) error {
	log := logthrottle.New(p.deps.Log)
	for {
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		refusal, err := preflight.Check(limited, p.reader, p.deps.Config)
		cancel()
		if err == nil {
			return refusal
		}
		if unreachable := (*url.Error)(nil); !errors.As(err, &unreachable) { // else Reach logs it
			log.Repeat("", func() {
				//log: A read failed that must succeed before the program runs in its mode.
				//do: Check the health of the API server, and the permissions in error.
				log.Warn("mode check failed, retrying", "mode", p.deps.Config.Mode, "error", err)
			})
		}
		if !retry.Sleep(ctx, checkPause) {
			return nil
		}
	}
}

// lead runs the loop for one term of leadership.
func (p *controller) lead(ctx context.Context) {
	p.metrics.leader.Set(1)
	defer p.metrics.leader.Set(0)
	defer p.lastLoop.Store(nil)
	//log: This replica holds the Lease, or runs without election, and acts now according to mode.
	p.deps.Log.Info("became leader", "mode", p.deps.Config.Mode)
	p.pods = p.pods.Restart()
	newLoop(p).run(ctx)
	//log: This replica lost the Lease or is stopping. No write is in flight any more.
	p.deps.Log.Info("stopped leading")
}

// markLoop records an iteration of the loop.
func (p *controller) markLoop() {
	now := time.Now()
	p.lastLoop.Store(&now)
}
