package kubeclient

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fakeLock counts the writes to a Lease.
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

// A leader renews its Lease only at a minimum age, however often it tries. It releases and acquires
// the Lease immediately.
func TestLeaderRenewsAtMinimumAge(t *testing.T) {
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
				t.Fatalf("leadership left = %v, want at least %v", left, l.deadline-l.minRenewAge)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if api.updates != 14 {
			t.Errorf("renewed %d times in 20 s, want 14", api.updates)
		}
		try("")
		try("me")
		if api.updates != 16 || stopped != 1 {
			t.Errorf("%d writes and %d stops, want 16 and 1", api.updates, stopped)
		}
	})
}

// A leader ends its work immediately when the Lease names another holder.
func TestLeaderWithLostLeaseStops(t *testing.T) {
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
			t.Errorf("Lease held by %q: stopped %d times, %v left, error %v", c.holder, stopped, l.hold.left(), err)
		}
	}
}

// A process that was stopped while another replica took over does not release the Lease, which is
// the other's. client-go's election would: it looks at the holder that it saw before the stop.
func TestLeaderWithLostLeaseReleasesNothing(t *testing.T) {
	for holder, want := range map[string]int{"me": 2, "another": 1, "": 2} {
		api := &fakeLock{holder: "another"} // until it expired
		l := &lock{Interface: api, hold: newHold(), deadline: 10 * time.Second, stop: func() {}}
		read := func() {
			t.Helper()
			if _, _, err := l.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		write := func(holder string) {
			t.Helper()
			if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: holder}); err != nil {
				t.Fatal(err)
			}
		}
		read()
		write("me")
		api.holder = holder
		read()
		write("")
		if api.updates != want || l.hold.left() > 0 {
			t.Errorf("Lease held by %q is released: %d writes, %v left, want %d and 0s", holder, api.updates, l.hold.left(), want)
		}
	}
}
