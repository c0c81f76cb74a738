// Package mirror keeps a copy of the nodes, their Leases and the bound pods of a cluster, reduced
// to the fields that decisions use. Watches fill it. After the start nothing is listed again,
// unless the API server no longer knows the resource version at which a watch ended.
//
//	mirror.go  Mirror: the copy, its age, and notifications of changes
//	view.go    View: access to the copy
//	feed.go    stores for the watches
//	source.go  one watch, and the time up to which it is complete
//	rival.go   writes of taints by other controllers
//	trim.go    the fields that are kept
package mirror

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Options configures New.
type Options struct {
	Nodes, Leases, Pods cache.ListerWatcherWithContext
	// Probe sends a small request to the API server. While nothing changes, watches are silent: a
	// successful probe shows that they would report changes.
	Probe func(context.Context) error
	// Rivals lists the field managers for View.Rival.
	Rivals []string
	// FromServer converts a time of the API server's clock to a time of this machine, at the latest
	// now.
	FromServer func(time.Time) time.Time
	Log        *slog.Logger
}

// From returns Options with lists and watches of nodes, the Leases of kube-node-lease, and pods
// that are bound and have not finished.
func From(client kubernetes.Interface, rivals []string, fromServer func(time.Time) time.Time,
	log *slog.Logger) Options {
	core, leases := client.CoreV1().RESTClient(), client.CoordinationV1().RESTClient()
	bound := fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(v1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(v1.PodFailed)),
	)
	return Options{
		Nodes: cache.NewListWatchFromClient(core, "nodes", "", fields.Everything()),
		Leases: cache.NewListWatchFromClient(leases, "leases", v1.NamespaceNodeLease,
			fields.Everything()),
		Pods: cache.NewListWatchFromClient(core, "pods", "", bound),
		Probe: func(ctx context.Context) error {
			return leases.Get().Namespace(v1.NamespaceNodeLease).Resource("leases").Param("limit",
				"1").MaxRetries(0).Do(ctx).Error()
		},
		Rivals: rivals, FromServer: fromServer, Log: log,
	}
}

// Mirror is the copy of the cluster. It is safe for concurrent use.
type Mirror struct {
	o Options
	// capacity 1: a change that decisions depend on
	wake                               chan struct{}
	probeNow                           chan struct{} // capacity 1: a probe is requested
	nodeSource, leaseSource, podSource source

	// guards the fields below; stored objects are replaced, never modified
	mu                sync.Mutex
	nodes             map[string]*v1.Node
	leases            map[string]*coordination.Lease
	beatAt, renewedAt map[string]time.Time // arrival of the current heartbeat and renewal
	pods              map[types.UID]*v1.Pod
	podsByNode        map[string][]*v1.Pod  // by node name
	rivalWrites       map[string]rivalWrite // by node name
	changed           bool                  // see wake
	trimmer           trimmer
}

// New returns an empty Mirror.
func New(o Options) *Mirror {
	m := &Mirror{
		o: o, wake: make(chan struct{}, 1), probeNow: make(chan struct{}, 1), nodes: map[string]*v1.Node{},
		leases: map[string]*coordination.Lease{},
		beatAt: map[string]time.Time{}, renewedAt: map[string]time.Time{}, pods: map[types.UID]*v1.Pod{},
		podsByNode: map[string][]*v1.Pod{}, rivalWrites: map[string]rivalWrite{},
		trimmer: trimmer{rivals: o.Rivals, tolerations: map[string][]v1.Toleration{}},
	}
	m.nodeSource.name, m.leaseSource.name, m.podSource.name = "nodes", "leases", "pods"
	return m
}

// Run watches until its context ends.
func (m *Mirror) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for _, run := range []func(){
		func() { m.nodeSource.run(ctx, m.o.Nodes, &v1.Node{}, m.nodeFeed(), m.o.Log) },
		func() { m.leaseSource.run(ctx, m.o.Leases, &coordination.Lease{}, m.leaseFeed(), m.o.Log) },
		func() { m.podSource.run(ctx, m.o.Pods, &v1.Pod{}, m.podFeed(), m.o.Log) },
		func() { m.probe(ctx) },
	} {
		parts.Go(run)
	}
	parts.Wait()
}

// Changed returns a channel that receives a value after a change that decisions depend on.
// Heartbeats and renewals are no such change: see View.Arrivals.
func (m *Mirror) Changed() <-chan struct{} { return m.wake }

// Unsynced returns the name of a source without an initial list; empty: all are synced.
func (m *Mirror) Unsynced() string {
	for _, s := range []*source{&m.nodeSource, &m.leaseSource, &m.podSource} {
		if !s.isSynced() {
			return s.name
		}
	}
	return ""
}

// NodesCurrentAt returns the time up to which all changes of nodes and Leases were received; zero:
// not synced.
func (m *Mirror) NodesCurrentAt() time.Time {
	a, b := m.nodeSource.currentAt(), m.leaseSource.currentAt()
	if b.Before(a) {
		return b
	}
	return a
}

// WatchedSince returns the time since which all changes of nodes and Leases were received as they
// happened: now while the API server does not answer.
func (m *Mirror) WatchedSince() time.Time {
	a, b := m.nodeSource.watched(), m.leaseSource.watched()
	if b.After(a) {
		return b
	}
	return a
}

// CurrentAt returns the time up to which all changes, including pods, were received; zero: not
// synced.
func (m *Mirror) CurrentAt() time.Time {
	at := m.NodesCurrentAt()
	if pods := m.podSource.currentAt(); pods.Before(at) {
		return pods
	}
	return at
}

// RequestProbe requests a probe, which makes the copy current. Changed receives a value afterwards.
func (m *Mirror) RequestProbe() {
	select {
	case m.probeNow <- struct{}{}:
	default:
	}
}

// Probes are sent while no event has arrived for probeAfter, on request, and every maxProbeAge.
// Responses tell the API server's clock, events do not: after that clock was set, or the machine was
// suspended, the estimate is wrong until the next response.
const (
	probePeriod  = time.Second
	probeAfter   = 3 * time.Second
	probeTimeout = 3 * time.Second
	maxProbeAge  = 10 * time.Second
)

// probe sends probes to the API server.
func (m *Mirror) probe(ctx context.Context) {
	tick := time.NewTicker(probePeriod)
	defer tick.Stop()
	for requested, last := false, time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-m.probeNow:
			requested = true
		}
		if read := m.NodesCurrentAt(); read.IsZero() || !requested && time.Since(read) < probeAfter &&
			time.Since(last) < maxProbeAge {
			continue
		}
		began := time.Now()
		last = began
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		err := m.o.Probe(limited)
		cancel()
		if err != nil {
			continue
		}
		for _, s := range []*source{&m.nodeSource, &m.leaseSource, &m.podSource} {
			s.recordProbe(began)
		}
		if requested && !m.NodesCurrentAt().Before(began) { // otherwise a watch is not open
			m.mu.Lock()
			m.notify()
			m.mu.Unlock()
		}
		requested = requested && m.CurrentAt().Before(began)
	}
}

// notify reports a change. The lock must be held.
func (m *Mirror) notify() {
	m.changed = true
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// older reports whether version is older than other, both of the same object. Versions that are not
// numbers cannot be compared and count as newer (apimachinery's util/resourceversion: they are
// numbers since 1.35).
func older(version, other string) bool {
	a, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return false
	}
	b, err := strconv.ParseUint(other, 10, 64)
	return err == nil && a < b
}
