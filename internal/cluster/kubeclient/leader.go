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

// Election configures the Lease and the times of leader election. Times and defaults are those of
// kube-controller-manager (k8s.io/component-base/config/v1alpha1/defaults.go, 0.36: 15 s, 10 s, 2
// s).
type Election struct {
	Namespace, Name string
	// after this time without a renewal another replica takes over; whole seconds
	LeaseDuration time.Duration
	RenewDeadline time.Duration // after this time without a renewal the leader has stopped
	RetryPeriod   time.Duration // the longest time between two tries
}

// Check validates the settings.
func (e *Election) Check() error {
	switch {
	case e.Namespace == "" || e.Name == "":
		return errors.New("the Lease has no namespace or name")
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

// tryPeriod returns the period of tries for client-go, which extends it by a factor of up to 2.2
// (leaderelection.JitterFactor). A standby sees a renewal up to one period late, and an expired
// Lease up to another one late: both together must not exceed RetryPeriod.
func (e *Election) tryPeriod() time.Duration { return e.RetryPeriod * 5 / 22 }

// minRenewAge returns the age at which the leader renews its Lease. It tries as often as standbys
// do, and its renewals would otherwise be most of the requests at rest. Most of RenewDeadline
// remains for failed renewals.
func (e *Election) minRenewAge() time.Duration {
	return min(e.RetryPeriod-e.tryPeriod(), e.RenewDeadline/4)
}

// RequestTimeout returns the timeout of election requests. A request that hangs must not cost the
// leadership.
func (e *Election) RequestTimeout() time.Duration { return max(time.Second, e.RenewDeadline/2) }

// Leader takes part in leader election. It is safe for concurrent use.
type Leader struct {
	election Election
	leases   coordination.LeasesGetter
	identity string
	log      *slog.Logger
	hold     *hold

	mu     sync.Mutex
	holder string
}

// NewLeader returns a Leader. Its client needs its own rate limit, and RequestTimeout.
func NewLeader(leases coordination.LeasesGetter, e Election, log *slog.Logger) (*Leader, error) {
	if err := e.Check(); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election: read the host name: %w", err)
	}
	identity := host + "_" + uuid.NewString()
	return &Leader{election: e, leases: leases, identity: identity, log: log, hold: newHold()}, nil
}

// Identity returns this replica's name in the Lease: the host name, which in a pod is the pod's
// name, and a unique suffix.
func (l *Leader) Identity() string { return l.identity }

// Holds reports whether this replica leads. While it does, no other replica leads.
func (l *Leader) Holds() bool { return l.hold.left() > 0 }

// Holder returns the last known leader; empty: none or unknown.
func (l *Leader) Holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

func (l *Leader) setHolder(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder != l.holder && holder != "" {
		//log: Another replica, or this one, holds the Lease now: holder is its identity.
		l.log.Info("leader changed", "holder", holder)
	}
	l.holder = holder
}

// Run takes part in the election until its context ends, and calls work for each term of
// leadership. The context of work ends with the term. work must not return earlier, because the
// replica would keep the Lease. It must return immediately then, and all
// its requests must end within LeaseDuration-RenewDeadline. Run releases the Lease after work has
// returned.
func (l *Leader) Run(ctx context.Context, work func(context.Context)) error {
	for ctx.Err() == nil {
		if err := l.campaign(ctx, work); err != nil {
			return err
		}
		retry.Sleep(ctx, l.election.RetryPeriod)
	}
	return nil
}

// campaign takes part in the election until the end of one term.
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

// term is one term of leadership. client-go calls run in a goroutine, possibly late: after end, run
// does nothing.
type term struct {
	leader *Leader
	work   func(context.Context)
	resign context.CancelFunc // ends the campaign

	mu     sync.Mutex
	ended  bool
	cancel context.CancelFunc
	done   chan struct{} // nil: not started
}

// run calls work until the term ends.
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
	t.resign() // otherwise a late renewal would keep the Lease without work
}

// watch returns at the end of the term.
func (t *term) watch(ctx context.Context) {
	for ctx.Err() == nil {
		left := t.leader.hold.left()
		if left <= 0 {
			//log: The Lease was not renewed within deadline. Another replica takes over, this one
			//  becomes standby.
			//do: Check the connection to the API server and the permission to update Leases.
			t.leader.log.Warn("Lease renewal failed, stopping work",
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

// end ends the work and waits for it.
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
