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
type leases struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
}

// reach is one replica's way to it.
type reach struct {
	coordination.LeaseInterface
	to *leases

	mu     sync.Mutex
	broken string // "": it answers; hangs: it does not; fails: with an error
}

func (r *reach) Leases(string) coordination.LeaseInterface { return r }

func (r *reach) breaks(how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = how
}

func (r *reach) ask(ctx context.Context, do func() error) (*coordinationv1.Lease, error) {
	r.mu.Lock()
	how := r.broken
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
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	if err := do(); err != nil {
		return nil, err
	}
	return r.to.lease.DeepCopy(), nil
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (r *reach) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return r.ask(ctx, func() error {
		if r.to.lease == nil {
			return apierrors.NewNotFound(leaseResource, name)
		}
		return nil
	})
}

func (r *reach) Create(ctx context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return r.ask(ctx, func() error {
		if r.to.lease != nil {
			return apierrors.NewAlreadyExists(leaseResource, l.Name)
		}
		return r.to.store(l)
	})
}

func (r *reach) Update(ctx context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return r.ask(ctx, func() error {
		if r.to.lease == nil || r.to.lease.ResourceVersion != l.ResourceVersion {
			return apierrors.NewConflict(leaseResource, l.Name, errors.New("modified"))
		}
		return r.to.store(l)
	})
}

func (s *leases) store(l *coordinationv1.Lease) error {
	s.version++
	s.lease = l.DeepCopy()
	s.lease.ResourceVersion = strings.Repeat("1", s.version)
	return nil
}

// office is who works, and when.
type office struct {
	t    *testing.T
	mu   sync.Mutex
	in   string
	last time.Time // when somebody left
	said chan string
}

// work is that of a replica, which takes a while to end.
func (o *office) work(who string, ends time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		o.mu.Lock()
		if o.in != "" {
			o.t.Errorf("%s begins while %s works", who, o.in)
		}
		o.in = who
		o.mu.Unlock()
		o.said <- who
		<-ctx.Done()
		time.Sleep(ends)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.in, o.last = "", time.Now()
	}
}

var times = Election{Namespace: "n", Name: "l", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}

// replica is one that stands until it is stopped.
type replica struct {
	*reach
	leader *Leader
	stop   func()
}

func (o *office) stand(to *leases, who string, ends time.Duration) *replica {
	r := &replica{reach: &reach{to: to}}
	var err error
	if r.leader, err = NewLeader(r.reach, times, slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
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
		o, to := &office{t: t, said: make(chan string, 9)}, &leases{}
		a := o.stand(to, "a", 3*time.Second)
		if who := <-o.said; who != "a" || !a.leader.Holds() {
			t.Fatal(who)
		}
		b := o.stand(to, "b", 0)
		time.Sleep(time.Minute)
		if b.leader.Holder() != a.leader.Identity() || b.leader.Holds() {
			t.Errorf("b believes %q leads", b.leader.Holder())
		}
		a.stop()
		freed := time.Now()
		if who := <-o.said; who != "b" || time.Since(freed) > 2*time.Second || freed.Before(o.last) {
			t.Errorf("%s begins %v after the lease was given back", who, time.Since(freed))
		}
		b.stop()
	})
}

// A leader whose requests hang or fail has stopped before another begins, which is within lease and retry.
func TestALeaderThatIsCutOffStopsFirst(t *testing.T) {
	for _, how := range []string{"hangs", "fails"} {
		synctest.Test(t, func(t *testing.T) {
			o, to := &office{t: t, said: make(chan string, 9)}, &leases{}
			a := o.stand(to, "a", time.Second)
			<-o.said
			b := o.stand(to, "b", 0)
			time.Sleep(time.Minute)
			a.breaks(how)
			cut := time.Now()
			if who := <-o.said; who != "b" || time.Since(cut) > 17*time.Second || o.last.IsZero() || time.Since(o.last) < time.Second {
				t.Errorf("%s: %s begins %v after the cut, %v after the work ended", how, who, time.Since(cut), time.Since(o.last))
			}
			if a.leader.Holds() {
				t.Error("a believes that it leads")
			}
			a.breaks("")
			time.Sleep(time.Minute) // it stands again, and follows
			if a.leader.Holds() || !b.leader.Holds() || a.leader.Holder() != b.leader.Identity() {
				t.Errorf("%s: a holds %v, b holds %v", how, a.leader.Holds(), b.leader.Holds())
			}
			b.stop()
			if who := <-o.said; who != "a" {
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
		o, to := &office{t: t, said: make(chan string, 9)}, &leases{}
		a := o.stand(to, "a", 0)
		<-o.said
		a.breaks("fails")
		time.Sleep(8 * time.Second)
		a.breaks("")
		time.Sleep(time.Minute)
		if len(o.said) != 0 || !a.leader.Holds() {
			t.Error("it has lost its lease")
		}
		a.breaks("hangs")
		time.Sleep(12 * time.Second)
		if o.mu.Lock(); o.in != "" {
			t.Error("it works without a lease")
		}
		o.mu.Unlock()
		a.breaks("")
		if who := <-o.said; who != "a" || !a.leader.Holds() {
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
