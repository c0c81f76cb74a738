package kubeclient

import (
	"context"
	"sync"
	"time"

	api "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// actingAnnotation marks the Lease of a leader that has begun to write. A replica that takes over
// from it need not wait for other controllers.
const actingAnnotation = "jettison/acting"

// acting is the state of actingAnnotation. It is safe for concurrent use.
type acting struct {
	identity string
	handover time.Duration // maximum age of the last renewal of the leader that acted

	mu   sync.Mutex
	acts bool
}

func (a *acting) get() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.acts
}

func (a *acting) set(acts bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acts = acts
}

// observe records whether the leader that another replica takes over from acted.
func (a *acting) observe(l *api.Lease) {
	if h := l.Spec.HolderIdentity; h != nil && *h == a.identity {
		return
	}
	_, acted := l.Annotations[actingAnnotation]
	a.set(acted && l.Spec.RenewTime != nil && time.Since(l.Spec.RenewTime.Time) < a.handover)
}

// mark adds the annotation to the Lease or removes it.
func (a *acting) mark(l *api.Lease) {
	switch {
	case !a.get():
		delete(l.Annotations, actingAnnotation)
	case l.Annotations == nil:
		l.Annotations = map[string]string{actingAnnotation: "true"}
	default:
		l.Annotations[actingAnnotation] = "true"
	}
}

// markedLeases reads and writes Leases with the annotation.
type markedLeases struct {
	coordination.LeasesGetter
	state *acting
}

// Leases returns a client for a namespace.
func (m markedLeases) Leases(namespace string) coordination.LeaseInterface {
	return markedLease{m.LeasesGetter.Leases(namespace), m.state}
}

type markedLease struct {
	coordination.LeaseInterface
	state *acting
}

// Get reads a Lease.
func (m markedLease) Get(ctx context.Context, name string, o metav1.GetOptions) (*api.Lease, error) {
	l, err := m.LeaseInterface.Get(ctx, name, o)
	if err == nil {
		m.state.observe(l)
	}
	return l, err
}

// Update writes a Lease.
func (m markedLease) Update(ctx context.Context, l *api.Lease, o metav1.UpdateOptions) (*api.Lease,
	error) {
	l = l.DeepCopy()
	m.state.mark(l)
	return m.LeaseInterface.Update(ctx, l, o)
}
