// Package runner implements jettison-cluster deschedule in a cluster. It reads the objects of the
// cluster, makes a plan with cluster/deschedule, and requests the planned evictions from the
// eviction API, once or periodically.
//
//	command.go     Command: jettison-cluster deschedule
//	flags.go       the flags of deschedule in a cluster
//	runner.go      Options, Run: clients, leader election, cycles
//	cycle.go       one cycle: a plan, and its evictions
//	evict.go       one eviction, and the meaning of API errors
//	history.go     state that a cycle leaves for the next ones
//	source.go      the objects of the cluster, from informers
//	trim.go        removal of object fields that no plan reads
//	bounds.go      limits of what is kept of one pod
//	usage.go       measured usage: metrics API, Prometheus, jettison agents
//	events.go      events about pods
//	metrics.go     metrics, and the server for metrics and health
//	version.go     check of the API server's version
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/cluster/deschedule"
	"jettison/internal/base/output"
	"jettison/internal/base/retry"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/kubeclient"
	"jettison/internal/cluster/statusserver"
)

// Options are the options of Run.
type Options struct {
	API    *rest.Config
	Reach  *kubeclient.Reach  // of API; nil: Run makes one
	Policy *deschedule.Policy // validated by Policy.Complete
	// Interval is the time from the start of one cycle to the next; 0: a single cycle.
	Interval time.Duration
	// DryRun prints the plan and evicts nothing.
	DryRun         bool
	Format         output.Format
	Election       *kubeclient.Election // nil: no leader election
	LeaseNamespace string               // namespace of the Leases in which agents report load
	Address        string               // address of the server for metrics and health; empty: no server
	Version        string
	Log            *slog.Logger
	Stdout         *terminal.Screen
}

const (
	// requestTimeout limits each request except those of informers and evictions.
	requestTimeout = 30 * time.Second
	// evictionTimeout limits an eviction. A webhook may delay it for 30 s
	// (pkg/apis/admissionregistration/validation, 1.37.2), and only the API server's answer names it.
	evictionTimeout = 40 * time.Second
	// reachTimeout limits the wait for the API server's first answer.
	reachTimeout = 30 * time.Second
	// syncTimeout limits the initial list of all objects.
	syncTimeout = 2 * time.Minute
	// After a failed cycle the next one is delayed by a backoff between these bounds.
	minBackoff = 5 * time.Second
	maxBackoff = 5 * time.Minute
)

// descheduler is a running descheduler. Cycles run sequentially and own history.
type descheduler struct {
	o       Options
	write   kubernetes.Interface // sends only while this replica leads
	source  *source
	usage   *usageReader
	history *history
	metrics *metrics
	now     func() time.Time
}

// Run runs cycles until its context ends, or a single cycle if Interval is 0. It returns errors
// of the start and of the single cycle.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Reach == nil {
		o.API = rest.CopyConfig(o.API)
		o.Reach = kubeclient.NewReach(o.API, o.Log)
	}
	d := &descheduler{o: o, history: newHistory(), metrics: newMetrics(o.Version), now: time.Now}
	if o.Address != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Address)
		if err != nil {
			return fmt.Errorf("serve metrics and health: %w", err)
		}
		defer d.serve(l)()
	}
	var err error
	api, leader := o.API, (*kubeclient.Leader)(nil)
	if o.Election != nil {
		if leader, err = d.newLeader(); err != nil {
			return err
		}
		api = kubeclient.Guarded(o.API, leader.Holds)
	}
	if d.write, err = kubeclient.New(api, "deschedule", evictionTimeout); err != nil {
		return err
	}
	query, err := kubeclient.New(o.API, "query", requestTimeout)
	if err != nil {
		return err
	}
	if err := d.awaitAPI(ctx, query, reachTimeout); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	read, err := kubeclient.New(o.API, "read", 0)
	if err != nil {
		return err
	}
	if o.Policy.Idle() {
		//log: The policy enables no strategy, so no pod is evicted.
		//do: Enable strategies under profiles[].plugins of the policy.
		o.Log.Warn("policy enables no strategy")
	}
	d.usage = newUsageReader(query, &o.API.TLSClientConfig, o.Policy, o.LeaseNamespace)
	d.source = newSource(read, o.Reach.Quiet(o.Log))
	defer d.source.close(cancel)
	if err := d.source.sync(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	d.metrics.ready.Store(true)
	if leader == nil {
		return d.cycles(ctx)
	}
	return leader.Run(ctx, func(ctx context.Context) {
		_ = d.cycles(ctx) // with an interval, each cycle logs its error
	})
}

func (d *descheduler) newLeader() (*kubeclient.Leader, error) {
	client, err := kubeclient.New(d.o.API, "election", d.o.Election.RequestTimeout())
	if err != nil {
		return nil, err
	}
	return kubeclient.NewLeader(client.CoordinationV1(), *d.o.Election, d.o.Log)
}

// fieldsOf returns the log attributes of an eviction.
func fieldsOf(e *deschedule.Eviction) []any {
	return []any{"pod", e.Namespace + "/" + e.Name, "uid", e.UID, "node", e.Node, "profile", e.Profile,
		"strategy", e.Strategy,
		"reason", e.Reason}
}

// cycles runs a single cycle, or one in each interval. After a failed cycle it waits at least the
// backoff.
func (d *descheduler) cycles(ctx context.Context) error {
	pause := minBackoff
	for ctx.Err() == nil {
		began := d.now()
		err := d.cycle(ctx)
		if d.o.Interval == 0 {
			if ctx.Err() != nil {
				return errors.New("deschedule: interrupted")
			}
			return err
		}
		wait := d.o.Interval - d.now().Sub(began)
		if err != nil && ctx.Err() == nil {
			wait = max(wait, pause)
			//log: A descheduling cycle failed. The next cycle starts after the time in after.
			//do: Fix the cause in error: usually an unreachable API server or a missing permission.
			d.o.Log.Error("descheduling cycle failed, retrying", "error", err, "after", wait)
			pause = retry.Backoff(pause, minBackoff, maxBackoff)
		} else {
			pause = minBackoff
		}
		retry.Sleep(ctx, wait)
	}
	return nil
}

// serve starts the server for metrics and health. stop shuts it down.
func (d *descheduler) serve(l net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := statusserver.Serve(ctx, l, d.metrics.handler()); err != nil {
			//log: The server for metrics and health stopped. Descheduling continues.
			//do: Restart the program; check whether another process uses the address.
			d.o.Log.Warn("metrics server stopped", "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
