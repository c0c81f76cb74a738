package kubeclient

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// hold is the time until which this replica leads.
type hold struct {
	mu      sync.Mutex
	until   time.Time // with monotonic and wall clock
	changed chan struct{}
}

func newHold() *hold { return &hold{changed: make(chan struct{}, 1)} }

// renew sets the end of the leadership; zero: it ended.
func (h *hold) renew(until time.Time) {
	h.mu.Lock()
	h.until = until
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// left returns the remaining time of leadership, the shorter one of two clocks: the monotonic clock
// stops while the machine is suspended, and the wall clock can be set.
func (h *hold) left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until.IsZero() {
		return 0
	}
	now := time.Now()
	return min(h.until.Sub(now), h.until.Round(0).Sub(now.Round(0)))
}

// lock is the Lease for client-go's election. It records the end of this replica's leadership,
// counted from before each request: standbys count from their observation of the renewal, which is
// later.
//
// It also ends the work before the Lease is released. The election alone does not: after failed
// renewals it first tries to release for up to another deadline.
type lock struct {
	resourcelock.Interface
	hold        *hold
	deadline    time.Duration // the work ends at this time after the last renewal
	minRenewAge time.Duration // minimum time between renewals
	stop        func()        // ends the work and waits for it
	lost        bool          // the Lease names another holder, as last read
}

// Get reads the Lease. If it names another holder, this replica no longer leads: the Lease was
// deleted or overwritten.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.lost = record.HolderIdentity != "" && record.HolderIdentity != l.Identity()
		if l.lost && l.hold.left() > 0 {
			l.hold.renew(time.Time{})
			l.stop()
		}
	}
	return record, raw, err
}

// Create creates the Lease.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(&record, func() error { return l.Interface.Create(ctx, record) })
}

// Update renews, acquires or releases the Lease.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(&record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *lock) write(record *resourcelock.LeaderElectionRecord, write func() error) error {
	if record.HolderIdentity != l.Identity() {
		l.hold.renew(time.Time{})
		l.stop()
		if l.lost {
			// After a stop of the process client-go releases by the holder that it saw before, in the
			// version that it has just read (leaderelection.go tryRelease, 0.37.2).
			return nil
		}
		return write()
	}
	if l.hold.left() > l.deadline-l.minRenewAge {
		return nil // a leader needs fewer renewals than standbys need reads
	}
	began := time.Now()
	err := write()
	if err == nil {
		l.lost = false
		l.hold.renew(began.Add(l.deadline))
	}
	return err
}
