package kubeclient

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// leaseServer is an API server with one Lease.
type leaseServer struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
}

// connection is one replica's connection to it.
type connection struct {
	coordination.LeaseInterface
	server *leaseServer

	mu    sync.Mutex
	fault string // "": none; hangs: no response; fails: an error
}

func (r *connection) Leases(string) coordination.LeaseInterface { return r }

func (r *connection) setFault(how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = how
}

func (r *connection) request(ctx context.Context, do func() error) (*coordinationv1.Lease, error) {
	r.mu.Lock()
	how := r.fault
	r.mu.Unlock()
	switch how {
	case "hangs":
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // the client's own timeout
		defer cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	case "fails":
		return nil, apierrors.NewInternalError(errors.New("as the test wants"))
	}
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if err := do(); err != nil {
		return nil, err
	}
	return r.server.lease.DeepCopy(), nil
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (r *connection) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return r.request(ctx, func() error {
		if r.server.lease == nil {
			return apierrors.NewNotFound(leaseResource, name)
		}
		return nil
	})
}

func (r *connection) Create(ctx context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return r.request(ctx, func() error {
		if r.server.lease != nil {
			return apierrors.NewAlreadyExists(leaseResource, l.Name)
		}
		return r.server.store(l)
	})
}

func (r *connection) Update(ctx context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return r.request(ctx, func() error {
		if r.server.lease == nil || r.server.lease.ResourceVersion != l.ResourceVersion {
			return apierrors.NewConflict(leaseResource, l.Name, errors.New("modified"))
		}
		return r.server.store(l)
	})
}

func (s *leaseServer) store(l *coordinationv1.Lease) error {
	s.version++
	s.lease = l.DeepCopy()
	s.lease.ResourceVersion = strings.Repeat("1", s.version)
	return nil
}

// workLog records the active replica.
type workLog struct {
	t       *testing.T
	mu      sync.Mutex
	active  string
	endedAt time.Time // when the last work ended
	started chan string
}

// work returns the work of a replica, which takes a while to end.
func (o *workLog) work(who string, ends time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		o.mu.Lock()
		if o.active != "" {
			o.t.Errorf("replica %s starts while replica %s works", who, o.active)
		}
		o.active = who
		o.mu.Unlock()
		o.started <- who
		<-ctx.Done()
		time.Sleep(ends)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.active, o.endedAt = "", time.Now()
	}
}

var times = Election{Namespace: "n", Name: "l", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}

// replica takes part in the election until it is stopped.
type replica struct {
	*connection
	leader *Leader
	stop   func()
}

func (o *workLog) startReplica(to *leaseServer, who string, ends time.Duration) *replica {
	r := &replica{connection: &connection{server: to}}
	var err error
	if r.leader, err = NewLeader(r.connection, times, slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(o.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.leader.Run(ctx, o.work(who, ends)); err != nil {
			o.t.Error(err)
		}
	}()
	r.stop = func() {
		cancel()
		<-done
	}
	return r
}

// A stopped replica ends its work before it releases its Lease. The next one starts within two
// seconds.
func TestStopReleasesLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, to := &workLog{t: t, started: make(chan string, 9)}, &leaseServer{}
		a := o.startReplica(to, "a", 3*time.Second)
		if who := <-o.started; who != "a" || !a.leader.Holds() {
			t.Fatalf("first leader = %s, want a", who)
		}
		b := o.startReplica(to, "b", 0)
		time.Sleep(time.Minute)
		if b.leader.Holder() != a.leader.Identity() || b.leader.Holds() {
			t.Errorf("holder known to b = %q, want %q; b leads: %v", b.leader.Holder(), a.leader.Identity(), b.leader.Holds())
		}
		a.stop()
		freed := time.Now()
		if who := <-o.started; who != "b" || time.Since(freed) > 2*time.Second || freed.Before(o.endedAt) {
			t.Errorf("%s starts %v after the release, want b within 2s", who, time.Since(freed))
		}
		b.stop()
	})
}

// A leader with requests that hang or fail stops before another one starts, which is within lease
// duration and retry period.
func TestDisconnectedLeaderStopsFirst(t *testing.T) {
	for _, how := range []string{"hangs", "fails"} {
		synctest.Test(t, func(t *testing.T) {
			o, to := &workLog{t: t, started: make(chan string, 9)}, &leaseServer{}
			a := o.startReplica(to, "a", time.Second)
			<-o.started
			b := o.startReplica(to, "b", 0)
			time.Sleep(time.Minute)
			a.setFault(how)
			cut := time.Now()
			if who := <-o.started; who != "b" || time.Since(cut) > 17*time.Second || o.endedAt.IsZero() || time.Since(o.endedAt) < time.Second {
				t.Errorf("%s: %s starts %v after the outage began and %v after the work ended, want b within 17s", how, who, time.Since(cut), time.Since(o.endedAt))
			}
			if a.leader.Holds() {
				t.Error("a still leads after its lease expired")
			}
			a.setFault("")
			time.Sleep(time.Minute) // it campaigns again, as a standby
			if a.leader.Holds() || !b.leader.Holds() || a.leader.Holder() != b.leader.Identity() {
				t.Errorf("%s: after the outage a leads: %v, b leads: %v, want b only", how, a.leader.Holds(), b.leader.Holds())
			}
			b.stop()
			if who := <-o.started; who != "a" {
				t.Errorf("leader after b stopped = %s, want a", who)
			}
			a.stop()
		})
	}
}

// An outage shorter than the deadline costs no leadership, a longer one does. Afterwards the same
// replica leads again, even if its last renewal succeeded late.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, to := &workLog{t: t, started: make(chan string, 9)}, &leaseServer{}
		a := o.startReplica(to, "a", 0)
		<-o.started
		a.setFault("fails")
		time.Sleep(8 * time.Second)
		a.setFault("")
		time.Sleep(time.Minute)
		if len(o.started) != 0 || !a.leader.Holds() {
			t.Error("leadership lost in an outage of 8s, want kept")
		}
		a.setFault("hangs")
		time.Sleep(12 * time.Second)
		if o.mu.Lock(); o.active != "" {
			t.Error("work continues 12s after the last renewal")
		}
		o.mu.Unlock()
		a.setFault("")
		if who := <-o.started; who != "a" || !a.leader.Holds() {
			t.Errorf("leader after the outage = %s, want a", who)
		}
		a.stop()
	})
}

func TestElectionCheck(t *testing.T) {
	for want, change := range map[string]func(*Election){
		"no namespace":   func(e *Election) { e.Namespace = "" },
		"whole seconds":  func(e *Election) { e.LeaseDuration += time.Millisecond },
		"renew deadline": func(e *Election) { e.RenewDeadline = e.LeaseDuration },
		"retry period":   func(e *Election) { e.RetryPeriod = 6 * time.Second },
	} {
		e := times
		change(&e)
		if _, err := NewLeader(nil, e, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error of an invalid election = %v, want %s", err, want)
		}
	}
}
