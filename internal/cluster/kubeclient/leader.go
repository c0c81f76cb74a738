package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"jettison/internal/base/retry"
)

// Election says by which Lease it is decided who acts, and how fast. The times and their defaults
// are those of kube-controller-manager (k8s.io/component-base/config/v1alpha1/defaults.go, 0.36: 15
// s, 10 s, 2 s).
type Election struct {
	Namespace, Name string
	// without a renewal for so long another replica takes over; whole seconds
	LeaseDuration time.Duration
	RenewDeadline time.Duration // without one for so long this one has stopped
	RetryPeriod   time.Duration // between two tries at most
}

// Check finds what is wrong with it.
func (e *Election) Check() error {
	switch {
	case e.Namespace == "" || e.Name == "":
		return errors.New("the Lease has no namespace or no name")
	case e.LeaseDuration < time.Second || e.LeaseDuration%time.Second != 0:
		return fmt.Errorf("lease duration %v: want whole seconds, at least one", e.LeaseDuration)
	case e.RenewDeadline <= 0 || e.RenewDeadline >= e.LeaseDuration:
		return fmt.Errorf("renew deadline %v: want more than 0 and less than the lease duration, %v",
			e.RenewDeadline, e.LeaseDuration)
	case e.RetryPeriod <= 0 || e.RetryPeriod*2 > e.RenewDeadline:
		return fmt.Errorf("retry period %v: want more than 0 and at most half of the renew deadline, %v",
			e.RetryPeriod, e.RenewDeadline)
	}
	return nil
}

// tryEvery is the pause between two tries. client-go makes it up to 2.2 times as long
// (leaderelection.JitterFactor), and a follower sees a renewal up to one pause late and a Lease
// that has run out up to another: both together are to take no longer than RetryPeriod.
func (e *Election) tryPeriod() time.Duration { return e.RetryPeriod * 5 / 22 }

// renewAfter is how old a renewal is at least when the next one is made: the one that leads tries
// as often as the others, and its tries would else be most of what is asked of the API at rest.
// Most of the deadline is left for renewals that fail.
func (e *Election) minRenewAge() time.Duration {
	return min(e.RetryPeriod-e.tryPeriod(), e.RenewDeadline/4)
}

// RequestTimeout is what a request of the election may take, so that one that hangs costs no
// leadership.
func (e *Election) RequestTimeout() time.Duration { return max(time.Second, e.RenewDeadline/2) }

// Leader stands for election. It may be asked by any goroutine.
type Leader struct {
	election Election
	leases   coordination.LeasesGetter
	identity string
	log      *slog.Logger
	hold     *hold

	mu     sync.Mutex
	holder string
}

// NewLeader makes a Leader that stands for nothing yet. Its client has to have its own limit of
// requests, and RequestTimeout.
func NewLeader(leases coordination.LeasesGetter, e Election, log *slog.Logger) (*Leader, error) {
	if err := e.Check(); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election: the host's name: %w", err)
	}
	return &Leader{election: e, leases: leases, identity: host + "_" + uuid.NewString(), log: log,
		hold: newHold()}, nil
}

// Identity is this replica's name in the Lease: the host's, which is the pod's, and what tells two
// of a host apart.
func (l *Leader) Identity() string { return l.identity }

// Holds reports whether this replica leads, so that no other can.
func (l *Leader) Holds() bool { return l.hold.left() > 0 }

// Holder is who led when it was last looked; empty: nobody, or it is not known.
func (l *Leader) Holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

func (l *Leader) setHolder(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder != l.holder && holder != "" {
		l.log.Info("who leads", "holder", holder)
	}
	l.holder = holder
}

// Run stands for election until its context ends, and has work done whenever this replica leads.
// The context of the work ends when it leads no more; work then has to return at once, and at most
// until LeaseDuration-RenewDeadline later no request of it may be under way. When Run returns the
// work has ended, and then the Lease is given back.
func (l *Leader) Run(ctx context.Context, work func(context.Context)) error {
	for ctx.Err() == nil {
		if err := l.campaign(ctx, work); err != nil {
			return err
		}
		retry.Sleep(ctx, l.election.RetryPeriod)
	}
	return nil
}

// stand stands until this replica has led once.
func (l *Leader) campaign(ctx context.Context, work func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &term{leader: l, work: work, resign: cancel}
	defer t.end()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &lock{hold: l.hold, deadline: l.election.RenewDeadline, minRenewAge: l.election.minRenewAge(),
			stop: t.end,
			Interface: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: l.election.Namespace, Name: l.election.Name},
				Client:     l.leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity},
			}},
		LeaseDuration: l.election.LeaseDuration, RenewDeadline: l.election.RenewDeadline,
		RetryPeriod: l.election.tryPeriod(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: t.run, OnStoppedLeading: func() {}, OnNewLeader: l.setHolder,
		},
		ReleaseOnCancel: true, Name: l.election.Name,
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	elector.Run(ctx)
	l.hold.renew(time.Time{})
	return nil
}

// term is one time of leading. It may begin late, since nobody waits for client-go's goroutine:
// after its end it does not.
type term struct {
	leader *Leader
	work   func(context.Context)
	resign context.CancelFunc // ends the standing

	mu     sync.Mutex
	ended  bool
	cancel context.CancelFunc
	done   chan struct{} // nil: it has not begun
}

// run does the work until the leader's time is up.
func (t *term) run(ctx context.Context) {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	t.cancel, t.done = cancel, make(chan struct{})
	t.mu.Unlock()
	defer close(t.done)
	var work sync.WaitGroup
	work.Go(func() { t.work(ctx) })
	t.watch(ctx)
	cancel()
	work.Wait()
	t.resign() // a renewal that comes too late must not have it lead without working
}

// watch returns when the work has to end.
func (t *term) watch(ctx context.Context) {
	for ctx.Err() == nil {
		left := t.leader.hold.left()
		if left <= 0 {
			t.leader.log.Warn("the lease could not be renewed in time: this replica stops",
				"deadline", t.leader.election.RenewDeadline)
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-t.leader.hold.changed:
		}
		timer.Stop()
	}
}

// end ends the work, and waits for it.
func (t *term) end() {
	t.mu.Lock()
	t.ended = true
	cancel, done := t.cancel, t.done
	t.mu.Unlock()
	if done != nil {
		cancel()
		<-done
	}
}
