// Package runner runs jettison-cluster deschedule in a cluster: it reads the cluster's objects, has
// cluster/deschedule plan, and asks the eviction API for what is planned, once or again and again.
//
//	command.go     Command: jettison-cluster deschedule
//	live.go        the flags of deschedule in a cluster
//	runner.go Options, Run: clients, who leads, when there is a cycle
//	cycle.go       one cycle: a plan, and its evictions
//	evict.go       one eviction, and what the API's answer means
//	memory.go      what a cycle leaves for the next ones
//	source.go      the cluster's objects, kept by informers
//	trim.go        what is kept of them
//	figures.go     real use: the metrics API, Prometheus, the nodes' own agents
//	events.go      events of pods
//	metrics.go     what is counted, and where that is told
//	version.go     whether the API server's version is near enough
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/cluster/deschedule"
	"jettison/internal/base/httpserver"
	"jettison/internal/base/output"
	"jettison/internal/base/retry"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/kubeclient"
)

// Options of Run.
type Options struct {
	API    *rest.Config
	Policy *deschedule.Policy // completed
	// Interval is from the begin of one cycle to that of the next; 0: there is one.
	Interval time.Duration
	// DryRun prints the plan that a cycle would carry out, and carries out none.
	DryRun         bool
	Format         output.Format
	Election       *kubeclient.Election // nil: there are no replicas
	LeaseNamespace string               // where the nodes' agents tell their load
	Address        string               // of metrics and health; empty: they are not told
	Version        string
	Log            *slog.Logger
	Stdout         *terminal.Screen
}

const (
	// requestLimit bounds each request but those of informers.
	requestLimit = 30 * time.Second
	// syncLimit is how long the first look at the cluster may take.
	syncLimit = 2 * time.Minute
	// After a cycle that failed the next one waits, twice as long each time.
	failedFirst = 5 * time.Second
	failedMost  = 5 * time.Minute
	// serverLimit is for the server of metrics to end.
	serverLimit = 2 * time.Second
)

// descheduler is one that runs. Cycles come one after the other, and own what it remembers.
type descheduler struct {
	o       Options
	write   kubernetes.Interface
	source  *source
	figures *figures
	memory  *memory
	metrics *metrics
	now     func() time.Time
}

// Run makes cycles until its context ends, or one. An error is one of the start, or of the one
// cycle.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &descheduler{o: o, memory: newMemory(), metrics: newMetrics(o.Version), now: time.Now}
	stop, err := d.serve()
	if err != nil {
		return err
	}
	defer stop()
	api, leader := o.API, (*kubeclient.Leader)(nil)
	if o.Election != nil {
		if leader, err = d.leader(); err != nil {
			return err
		}
		api = kubeclient.Guarded(o.API, leader.Holds)
	}
	if d.write, err = kubeclient.New(api, "deschedule", requestLimit); err != nil {
		return err
	}
	if err := supported(ctx, discovery.ToServerVersionInterfaceWithContext(
		d.write.Discovery())); err != nil && ctx.Err() == nil {
		o.Log.Warn("this cluster's version may not be supported", "error", err)
	}
	read, err := kubeclient.New(o.API, "read", 0)
	if err != nil {
		return err
	}
	if o.Policy.Idle() {
		o.Log.Warn("the policy enables no strategy: nobody is evicted")
	}
	d.figures = newFigures(d.write, o.Policy, o.LeaseNamespace)
	d.source = newSource(read, o.Log)
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
		_ = d.cycles(ctx) // with an interval each says itself what is wrong
	})
}

func (d *descheduler) leader() (*kubeclient.Leader, error) {
	client, err := kubeclient.New(d.o.API, "election", d.o.Election.RequestTimeout())
	if err != nil {
		return nil, err
	}
	return kubeclient.NewLeader(client.CoordinationV1(), *d.o.Election, d.o.Log)
}

// fieldsOf are what the log says of an eviction.
func fieldsOf(e *deschedule.Eviction) []any {
	return []any{"pod", e.Namespace + "/" + e.Name, "uid", e.UID, "node", e.Node, "profile", e.Profile,
		"strategy", e.Strategy,
		"reason", e.Reason}
}

// cycles makes one, or one each interval. After one that failed it waits longer: an error never
// makes it ask without a pause.
func (d *descheduler) cycles(ctx context.Context) error {
	pause := failedFirst
	for ctx.Err() == nil {
		began := d.now()
		err := d.cycle(ctx)
		if d.o.Interval == 0 {
			if ctx.Err() != nil {
				return errors.New("deschedule: it was ended before it was done")
			}
			return err
		}
		wait := d.o.Interval - d.now().Sub(began)
		if err != nil && ctx.Err() == nil {
			wait = max(wait, pause)
			d.o.Log.Error("a cycle of descheduling failed", "error", err, "again", wait)
			pause = retry.Backoff(pause, failedFirst, failedMost)
		} else {
			pause = failedFirst
		}
		retry.Sleep(ctx, wait)
	}
	return nil
}

// serve tells metrics and health. stop ends that.
func (d *descheduler) serve() (stop func(), err error) {
	if d.o.Address == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", d.o.Address)
	if err != nil {
		return nil, fmt.Errorf("tell metrics and health: %w", err)
	}
	server := &http.Server{Handler: d.metrics.handler(), ReadHeaderTimeout: serverLimit,
		ReadTimeout: requestLimit, WriteTimeout: requestLimit}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			d.o.Log.Warn("metrics and health are told no more", "error", err)
		}
	}()
	return func() {
		httpserver.Shutdown(server, serverLimit)
		<-done
	}, nil
}
