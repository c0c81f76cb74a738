package kubeclient

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// leases is one Lease of an API that replicas reach or do not.
type leaseServer struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
}

// reach is one replica's way to it.
type connection struct {
	coordination.LeaseInterface
	server *leaseServer

	mu    sync.Mutex
	fault string // "": it answers; hangs: it does not; fails: with an error
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
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // the client's own
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

// office is who works, and when.
type workLog struct {
	t       *testing.T
	mu      sync.Mutex
	active  string
	endedAt time.Time // when somebody left
	started chan string
}

// work is that of a replica, which takes a while to end.
func (o *workLog) work(who string, ends time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		o.mu.Lock()
		if o.active != "" {
			o.t.Errorf("%s begins while %s works", who, o.active)
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

// replica is one that stands until it is stopped.
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

// A replica that is stopped ends its work before it gives its lease back, and the next begins within two seconds.
func TestACleanStopHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, to := &workLog{t: t, started: make(chan string, 9)}, &leaseServer{}
		a := o.startReplica(to, "a", 3*time.Second)
		if who := <-o.started; who != "a" || !a.leader.Holds() {
			t.Fatal(who)
		}
		b := o.startReplica(to, "b", 0)
		time.Sleep(time.Minute)
		if b.leader.Holder() != a.leader.Identity() || b.leader.Holds() {
			t.Errorf("b believes %q leads", b.leader.Holder())
		}
		a.stop()
		freed := time.Now()
		if who := <-o.started; who != "b" || time.Since(freed) > 2*time.Second || freed.Before(o.endedAt) {
			t.Errorf("%s begins %v after the lease was given back", who, time.Since(freed))
		}
		b.stop()
	})
}

// A leader whose requests hang or fail has stopped before another begins, which is within lease and retry.
func TestALeaderThatIsCutOffStopsFirst(t *testing.T) {
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
				t.Errorf("%s: %s begins %v after the cut, %v after the work ended", how, who, time.Since(cut), time.Since(o.endedAt))
			}
			if a.leader.Holds() {
				t.Error("a believes that it leads")
			}
			a.setFault("")
			time.Sleep(time.Minute) // it stands again, and follows
			if a.leader.Holds() || !b.leader.Holds() || a.leader.Holder() != b.leader.Identity() {
				t.Errorf("%s: a holds %v, b holds %v", how, a.leader.Holds(), b.leader.Holds())
			}
			b.stop()
			if who := <-o.started; who != "a" {
				t.Error(who)
			}
			a.stop()
		})
	}
}

// An API that is away for less than the deadline costs no leadership; one that is away for longer costs it, and when it is back the same
// replica works again, though its last renewal may have come through late.
func TestTheAPIIsAwayForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, to := &workLog{t: t, started: make(chan string, 9)}, &leaseServer{}
		a := o.startReplica(to, "a", 0)
		<-o.started
		a.setFault("fails")
		time.Sleep(8 * time.Second)
		a.setFault("")
		time.Sleep(time.Minute)
		if len(o.started) != 0 || !a.leader.Holds() {
			t.Error("it has lost its lease")
		}
		a.setFault("hangs")
		time.Sleep(12 * time.Second)
		if o.mu.Lock(); o.active != "" {
			t.Error("it works without a lease")
		}
		o.mu.Unlock()
		a.setFault("")
		if who := <-o.started; who != "a" || !a.leader.Holds() {
			t.Error(who)
		}
		a.stop()
	})
}

func TestWhatIsWrongWithAnElection(t *testing.T) {
	for want, change := range map[string]func(*Election){
		"no namespace":   func(e *Election) { e.Namespace = "" },
		"whole seconds":  func(e *Election) { e.LeaseDuration += time.Millisecond },
		"renew deadline": func(e *Election) { e.RenewDeadline = e.LeaseDuration },
		"retry period":   func(e *Election) { e.RetryPeriod = 6 * time.Second },
	} {
		e := times
		change(&e)
		if _, err := NewLeader(nil, e, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Whoever does not lead reads, and writes nothing.
func TestTheGuard(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method)
		if agent := r.UserAgent(); agent != "program/1 test" {
			t.Errorf("it calls itself %q", agent)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`)
	}))
	defer s.Close()
	leads := false
	client, err := New(Guarded(&rest.Config{Host: s.URL, UserAgent: "program/1"}, func() bool { return leads }), "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	nodes := client.CoreV1().Nodes()
	if _, err := nodes.Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := nodes.Update(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.UpdateOptions{}); !errors.Is(err, ErrNotLeading) {
		t.Error(err)
	}
	leads = true
	if _, err := nodes.Update(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if strings.Join(asked, " ") != "GET PUT" {
		t.Error(asked)
	}
}
