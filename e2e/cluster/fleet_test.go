package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// A fleet's kubelets renew Leases and post statuses as often as real ones. slots spreads all
// renewals over the period. kubelets is the maximum number of requests in flight.
const (
	renewEvery  = 10 * time.Second
	statusEvery = 5 * time.Minute
	slots       = 100
	kubelets    = 16
	fleetZones  = 3
)

// fleet has thousands of nodes without machines, in three zones. The Lease of each living one is
// renewed. The fleet records from a watch how the API server's view of each node changes.
type fleet struct {
	t      testing.TB
	client kubernetes.Interface // speaks protobuf
	nodes  []*sailor
	of     map[string]*sailor
	grace  time.Duration

	renewals atomic.Int64
	late     atomic.Int64 // renewals more than a second late
	lost     atomic.Int64 // failed renewals

	mu     sync.Mutex // of the fields of a sailor marked with it
	wrong  []string
	given  int // NoExecute taints added since begin
	wakeUp chan struct{}
}

// sailor is a node of a fleet.
type sailor struct {
	number     int
	name, zone string
	lease      *coordinationv1.Lease // owned by the goroutine that set busy
	beats      int                   // owned by it, too: the number of renewals
	busy       atomic.Bool           // a renewal is in flight

	// The fields below are protected by the fleet's lock.
	alive    bool
	renewed  time.Time // the last renewal that the API server confirmed
	unknown  time.Time // start of condition Ready Unknown; zero: another state
	executed time.Time // start of its NoExecute taint; zero: none
	tainted  bool      // it has any taint of an unhealthy node
}

// newFleet makes nodes, each with so many running pods.
func newFleet(t testing.TB, c *Cluster, nodes, pods int, grace time.Duration) *fleet {
	t.Helper()
	config := rest.CopyConfig(c.Admin)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, client: client, of: map[string]*sailor{}, grace: grace, wakeUp: make(chan struct{}, 1)}
	for i := range nodes {
		s := &sailor{number: i, name: fmt.Sprintf("m%04d", i), zone: fmt.Sprint("z", i%fleetZones)}
		f.nodes, f.of[s.name] = append(f.nodes, s), s
	}
	f.each(f.nodes, func(ctx context.Context, s *sailor) error { return f.join(ctx, s, pods) })
	f.startRenewals()
	// Making them may take longer than a node may be silent.
	began := time.Now()
	if n := f.await(f.nodes, startDeadline, func(s *sailor) bool { return s.renewed.After(began) }); n < nodes {
		t.Fatalf("of %d nodes %d renew within %v: the machine is too slow", nodes, n, startDeadline)
	}
	return f
}

// each calls a function for each of these, several at a time.
func (f *fleet) each(all []*sailor, do func(context.Context, *sailor) error) {
	f.t.Helper()
	next, failed := make(chan *sailor), make(chan error, len(all))
	var workers sync.WaitGroup
	for range 2 * kubelets {
		workers.Go(func() {
			for s := range next {
				if err := do(f.t.Context(), s); err != nil {
					failed <- fmt.Errorf("%s: %w", s.name, err)
				}
			}
		})
	}
	for _, s := range all {
		next <- s
	}
	close(next)
	if workers.Wait(); len(failed) > 0 {
		f.t.Fatal(<-failed)
	}
}

func (f *fleet) join(ctx context.Context, s *sailor, pods int) error {
	node, err := f.client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{
		v1.LabelHostname: s.name, v1.LabelTopologyRegion: "r", v1.LabelTopologyZone: s.zone, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
	}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Status.Conditions = healthy()
	if _, err = f.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	for i := range pods {
		if err := f.makePod(ctx, fmt.Sprintf("%s-%d", s.name, i), s.name); err != nil {
			return err
		}
	}
	now := metav1.NowMicro()
	s.lease, err = f.client.CoordinationV1().Leases(v1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &s.name, RenewTime: &now},
	}, metav1.CreateOptions{})
	s.alive, s.renewed = true, time.Now()
	return err
}

// makePod makes a running pod that tolerates silence for five minutes, as admission sets it.
func (f *fleet) makePod(ctx context.Context, name, node string) error {
	no := false
	p, err := f.client.CoreV1().Pods("default").Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}},
		Spec: v1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: &no, Containers: []v1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return f.postRunning(ctx, p)
}

// postRunning posts a kubelet's status of a running pod.
func (f *fleet) postRunning(ctx context.Context, p *v1.Pod) error {
	at := metav1.Now()
	p = p.DeepCopy()
	p.Status.Phase, p.Status.StartTime = v1.PodRunning, &at
	p.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: at},
		{Type: v1.ContainersReady, Status: v1.ConditionTrue, LastTransitionTime: at},
	}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Ready: true, State: v1.ContainerState{
		Running: &v1.ContainerStateRunning{StartedAt: at},
	}}}
	_, err := f.client.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}

// startRenewals starts the renewals and the watch.
func (f *fleet) startRenewals() {
	ctx, cancel := context.WithCancel(f.t.Context())
	var all sync.WaitGroup
	list, err := f.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	lw := cache.NewListWatchFromClient(f.client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, lw)
	if err != nil {
		f.t.Fatal(err)
	}
	all.Go(func() { f.watch(ctx, w) })
	next := make(chan *sailor, len(f.nodes))
	for range kubelets {
		all.Go(func() {
			for s := range next {
				f.beat(ctx, s)
				s.busy.Store(false)
			}
		})
	}
	all.Go(func() {
		defer close(next)
		tick := time.NewTicker(renewEvery / slots)
		defer tick.Stop()
		for turn := 0; ; turn++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for _, s := range f.nodes {
				if s.number/10%slots == turn%slots && s.busy.CompareAndSwap(false, true) {
					next <- s
				}
			}
		}
	})
	f.t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// beat does a kubelet's work of every ten seconds.
func (f *fleet) beat(ctx context.Context, s *sailor) {
	f.mu.Lock()
	alive, before := s.alive, s.renewed
	f.mu.Unlock()
	if !alive {
		return
	}
	if err := f.renew(ctx, s); err != nil {
		if ctx.Err() == nil {
			f.lost.Add(1)
		}
		return
	}
	if time.Since(before) > renewEvery+time.Second {
		f.late.Add(1)
	}
	if every := int(statusEvery / renewEvery); s.beats%every == s.number%every {
		if err := f.post(ctx, s, heartbeats()); err != nil && ctx.Err() == nil {
			f.lost.Add(1)
		}
	}
}

// heartbeats returns a kubelet's status of unchanged conditions.
func heartbeats() (out []map[string]any) {
	for _, c := range healthy() {
		out = append(out, map[string]any{"type": c.Type, "lastHeartbeatTime": c.LastHeartbeatTime})
	}
	return out
}

// renew renews a node's Lease as a kubelet does: by an update of the last answer.
func (f *fleet) renew(ctx context.Context, s *sailor) error {
	now := metav1.NowMicro()
	l := s.lease.DeepCopy()
	l.Spec.RenewTime = &now
	is, err := f.client.CoordinationV1().Leases(v1.NamespaceNodeLease).Update(ctx, l, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) { // an earlier answer was lost
		if is, err = f.client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, s.name, metav1.GetOptions{}); err == nil {
			s.lease = is
		}
		return err
	}
	if err != nil {
		return err
	}
	s.lease = is
	s.beats++
	f.renewals.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	s.renewed = time.Now()
	return nil
}

// post posts conditions of a node.
func (f *fleet) post(ctx context.Context, s *sailor, conditions any) error {
	text, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	return patchNode(ctx, f.client, s.name, string(text))
}

// watch records the changes of nodes.
func (f *fleet) watch(ctx context.Context, w watch.Interface) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if n, is := e.Object.(*v1.Node); is {
				f.note(n, time.Now())
			} else if !ok || e.Type == watch.Error {
				f.mu.Lock()
				f.wrong = append(f.wrong, fmt.Sprintf("the watch of nodes ends: %v", e.Object))
				f.mu.Unlock()
				return
			}
		}
	}
}

// note records a node's state. A NoExecute taint on a node with current renewals counts as a wrong.
func (f *fleet) note(n *v1.Node, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.of[n.Name]
	if s == nil {
		return
	}
	executes := slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute })
	switch {
	case executes && s.executed.IsZero():
		s.executed = at
		if f.given++; at.Sub(s.renewed) < f.grace-time.Second {
			f.wrong = append(f.wrong, fmt.Sprintf("%s gets %v, and has renewed %v before", s.name, n.Spec.Taints, at.Sub(s.renewed)))
		}
	case !executes:
		s.executed = time.Time{}
	}
	switch is := isTrue(n, v1.NodeReady); {
	case !is && s.unknown.IsZero():
		s.unknown = at
	case is:
		s.unknown = time.Time{}
	}
	s.tainted = len(n.Spec.Taints) > 0
	select {
	case f.wakeUp <- struct{}{}:
	default:
	}
}

// silence makes nodes silent, all at the same time.
func (f *fleet) silence(all []*sailor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.given = 0
	for _, s := range all {
		s.alive = false
	}
}

// await waits until a predicate is true for each of these, and returns for how many it is.
func (f *fleet) await(all []*sailor, limit time.Duration, holds func(*sailor) bool) (n int) {
	late := time.After(limit)
	for {
		f.mu.Lock()
		n = 0
		for _, s := range all {
			if holds(s) {
				n++
			}
		}
		f.mu.Unlock()
		if n == len(all) {
			return n
		}
		select {
		case <-f.wakeUp:
			time.Sleep(50 * time.Millisecond) // more changes follow
		case <-time.After(time.Second): // renewals do not signal
		case <-late:
			return n
		case <-f.t.Context().Done():
			return n
		}
	}
}

// resume makes nodes renew again, waits until they are untainted and Ready, and makes their pods run
// again.
func (f *fleet) resume(all []*sailor) (took time.Duration) {
	f.t.Helper()
	began := time.Now()
	f.each(all, func(ctx context.Context, s *sailor) error {
		for !s.busy.CompareAndSwap(false, true) {
			time.Sleep(time.Millisecond)
		}
		defer s.busy.Store(false)
		if err := f.renew(ctx, s); err != nil {
			return err
		}
		f.mu.Lock()
		s.alive = true
		f.mu.Unlock()
		return f.post(ctx, s, healthy())
	})
	if n := f.await(all, 3*time.Minute, func(s *sailor) bool { return !s.tainted && s.unknown.IsZero() }); n < len(all) {
		f.t.Errorf("of %d nodes that renew again %d are Ready and untainted", len(all), n)
	}
	took = time.Since(began)
	f.markPodsReady()
	return took
}

// markPodsReady makes all pods run that were marked as not ready. None may be terminating.
func (f *fleet) markPodsReady() {
	f.t.Helper()
	list, err := f.client.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		f.t.Fatal(err)
	}
	marked := map[string][]*v1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		if p.DeletionTimestamp != nil {
			f.t.Errorf("pod %s is deleted before its toleration ends", p.Name)
		} else if !podReady(p) && p.Status.Phase == v1.PodRunning { // an evicted pod is Failed
			marked[p.Spec.NodeName] = append(marked[p.Spec.NodeName], p)
		}
	}
	f.each(f.nodes, func(ctx context.Context, s *sailor) error {
		for _, p := range marked[s.name] {
			if err := f.postRunning(ctx, p); err != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
		return nil
	})
}

// wrongTaints returns the wrong taints on living nodes.
func (f *fleet) wrongTaints() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.wrong)
}
