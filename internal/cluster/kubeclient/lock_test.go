package kubeclient

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// written counts what is written of a Lease.
type fakeLock struct {
	resourcelock.Interface
	updates int
	holder  string
}

func (l *fakeLock) Identity() string { return "me" }

func (l *fakeLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, nil
}

func (l *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	l.updates++
	return nil
}

// A leader that tries more often than it has to renews only when the last time is old enough, however long it has led; it gives its Lease back
// at once, and takes it anew at once.
func TestALeaderRenewsOnlyWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, stopped := &fakeLock{}, 0
		l := &lock{Interface: api, hold: newHold(), deadline: 10 * time.Second, minRenewAge: 1500 * time.Millisecond, stop: func() { stopped++ }}
		try := func(holder string) {
			t.Helper()
			if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: holder}); err != nil {
				t.Fatal(err)
			}
		}
		for range 41 { // 20 s of tries
			try("me")
			if left := l.hold.left(); left < l.deadline-l.minRenewAge {
				t.Fatalf("it leads for %v more, want %v at least", left, l.deadline-l.minRenewAge)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if api.updates != 14 {
			t.Errorf("renewed %d times in 20 s, want 14", api.updates)
		}
		try("")
		try("me")
		if api.updates != 16 || stopped != 1 {
			t.Errorf("%d writes, want 16; stopped %d times", api.updates, stopped)
		}
	})
}

// A leader that sees that another has its Lease, as where somebody has deleted it, ends its work at once.
func TestALeaderWhoseLeaseIsAnothersEnds(t *testing.T) {
	api, stopped := &fakeLock{holder: "me"}, 0
	l := &lock{Interface: api, hold: newHold(), deadline: 10 * time.Second, stop: func() { stopped++ }}
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		holder  string
		stopped int
		leads   bool
	}{{"me", 0, true}, {"", 0, true}, {"another", 1, false}, {"another", 1, false}} {
		api.holder = c.holder
		if _, _, err := l.Get(t.Context()); err != nil || stopped != c.stopped || (l.hold.left() > 0) != c.leads {
			t.Errorf("held by %q: stopped %d times, leads for %v, %v", c.holder, stopped, l.hold.left(), err)
		}
	}
}
