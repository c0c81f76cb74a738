// Package mirror keeps a copy of what decisions use of a cluster: its nodes, their Leases, and the
// pods that are bound to them. It is filled by watches: after the start nothing is listed again,
// unless the API server does not know any more where a watch has ended.
//
//	mirror.go  Mirror: what is there, and who waits for changes
//	look.go    View: what a look at it sees
//	feed.go    what watches hand over
//	source.go  a watch, and whether it may be believed that nothing was missed
//	keep.go    what of an object is kept
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

// Options of New.
type Options struct {
	Nodes, Leases, Pods cache.ListerWatcherWithContext
	// Probe reads something small of the API: while nothing changes nothing is heard, and it is to be
	// known that it would be.
	Probe func(context.Context) error
	// Rivals are managers of fields whose taints of nodes are to be known, see Rival.
	Rivals []string
	Log    *slog.Logger
}

// From has a client list and watch: nodes, the Leases of kube-node-lease, and pods that are bound
// and not over.
func From(client kubernetes.Interface, rivals []string, log *slog.Logger) Options {
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
		Rivals: rivals, Log: log,
	}
}

// Mirror is the copy. It may be asked by any goroutine.
type Mirror struct {
	o                                  Options
	wake                               chan struct{} // one slot: what decisions depend on has changed
	probeNow                           chan struct{} // one slot: it is to be proven that nothing has
	nodeSource, leaseSource, podSource source

	mu                sync.Mutex // of what is below; objects that are there are never changed, but replaced
	nodes             map[string]*v1.Node
	leases            map[string]*coordination.Lease
	beatAt, renewedAt map[string]time.Time // when they came to be as they are
	pods              map[types.UID]*v1.Pod
	podsByNode        map[string][]*v1.Pod // by node
	changed           bool                 // see wake
	trimmer           trimmer
}

// New makes a Mirror that knows nothing yet.
func New(o Options) *Mirror {
	m := &Mirror{
		o: o, wake: make(chan struct{}, 1), probeNow: make(chan struct{}, 1), nodes: map[string]*v1.Node{},
		leases: map[string]*coordination.Lease{},
		beatAt: map[string]time.Time{}, renewedAt: map[string]time.Time{}, pods: map[types.UID]*v1.Pod{},
		podsByNode: map[string][]*v1.Pod{},
		trimmer:    trimmer{rivals: o.Rivals, tolerations: map[string][]v1.Toleration{}},
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

// Changed is sent to when something has changed that decisions depend on. Heartbeats and renewals
// are no such change: see View.Came.
func (m *Mirror) Changed() <-chan struct{} { return m.wake }

// Missing is what is not known yet; empty: all is.
func (m *Mirror) Unsynced() string {
	for _, s := range []*source{&m.nodeSource, &m.leaseSource, &m.podSource} {
		if !s.isSynced() {
			return s.name
		}
	}
	return ""
}

// Read is since when neither nodes nor leases may have changed without being seen; zero: they are
// not known yet.
func (m *Mirror) NodesCurrentAt() time.Time {
	a, b := m.nodeSource.currentAt(), m.leaseSource.currentAt()
	if b.Before(a) {
		return b
	}
	return a
}

// Fresh is since when anything, pods included, may have changed without being seen; zero: not all
// is known yet.
func (m *Mirror) CurrentAt() time.Time {
	at := m.NodesCurrentAt()
	if pods := m.podSource.currentAt(); pods.Before(at) {
		return pods
	}
	return at
}

// Prove has it proven that what is known is what is so now. Changed is sent to when it is.
func (m *Mirror) RequestProbe() {
	select {
	case m.probeNow <- struct{}{}:
	default:
	}
}

// How it is proven that the API answers: while it has not been heard from for a while, or when
// somebody wants to know.
const (
	probePeriod  = time.Second
	probeAfter   = 3 * time.Second
	probeTimeout = 3 * time.Second
)

// prove asks the API for something small while it says nothing by itself.
func (m *Mirror) probe(ctx context.Context) {
	tick := time.NewTicker(probePeriod)
	defer tick.Stop()
	for wanted := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-m.probeNow:
			wanted = true
		}
		if read := m.NodesCurrentAt(); read.IsZero() || !wanted && time.Since(read) < probeAfter {
			continue
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		err := m.o.Probe(limited)
		cancel()
		if err != nil {
			continue
		}
		for _, s := range []*source{&m.nodeSource, &m.leaseSource, &m.podSource} {
			s.recordProbe(began)
		}
		if wanted && !m.NodesCurrentAt().Before(began) { // else a watch does not stand
			m.mu.Lock()
			m.notify()
			m.mu.Unlock()
		}
		wanted = wanted && m.CurrentAt().Before(began)
	}
}

// notify wakes whoever decides. The lock is held.
func (m *Mirror) notify() {
	m.changed = true
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// older reports whether an object is an older version than another of the same. Versions that are
// no numbers cannot be compared, and count as newer (apimachinery's util/resourceversion has the
// rule: they are numbers since 1.35).
func older(version, than string) bool {
	a, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return false
	}
	b, err := strconv.ParseUint(than, 10, 64)
	return err == nil && a < b
}
