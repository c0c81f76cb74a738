package kubeclient

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// hold is until when this replica leads.
type hold struct {
	mu      sync.Mutex
	until   time.Time // by both clocks
	changed chan struct{}
}

func newHold() *hold { return &hold{changed: make(chan struct{}, 1)} }

// renew has it lead until a time; the zero time: no more.
func (h *hold) renew(until time.Time) {
	h.mu.Lock()
	h.until = until
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// left is for how long it leads still. It goes by both clocks: that of a machine that slept has
// stood still, the wall's may be set.
func (h *hold) left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until.IsZero() {
		return 0
	}
	now := time.Now()
	return min(h.until.Sub(now), h.until.Round(0).Sub(now.Round(0)))
}

// lock is the Lease as client-go's election uses it. It notes until when this replica leads,
// counted from before each request: who follows counts from when it saw the answer's effect, which
// is later. And it has the work end before the Lease is given back, which the election alone does
// not: where it could not renew, it tries for up to another deadline to give back, and tells the
// work only then.
type lock struct {
	resourcelock.Interface
	hold        *hold
	deadline    time.Duration // after the last renewal the work has to have ended
	minRenewAge time.Duration // after a renewal the next one may wait for so long
	stop        func()        // ends the work, and returns when it has ended
}

// Get reads the Lease. Where it names another holder this replica leads no more: somebody has
// deleted it, or written to it, while it did.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != "" && record.HolderIdentity != l.Identity() &&
		l.hold.left() > 0 {
		l.hold.renew(time.Time{})
		l.stop()
	}
	return record, raw, err
}

// Create makes the Lease.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(&record, func() error { return l.Interface.Create(ctx, record) })
}

// Update renews it, takes it over, or gives it back.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(&record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *lock) write(record *resourcelock.LeaderElectionRecord, write func() error) error {
	if record.HolderIdentity != l.Identity() {
		l.hold.renew(time.Time{})
		l.stop()
		return write()
	}
	if l.hold.left() > l.deadline-l.minRenewAge {
		return nil // a leader has to renew much less often than followers have to look
	}
	began := time.Now()
	err := write()
	if err == nil {
		l.hold.renew(began.Add(l.deadline))
	}
	return err
}
