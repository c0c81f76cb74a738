package disk

import (
	"testing"
	"time"
)

// While a disk is short, figures are renewed after seconds; otherwise after a minute.
func TestAHurriedWalkRenewsSooner(t *testing.T) {
	l := newStorageLoop(&storageWalker{}, storageEvery)
	l.pods["a"] = &storage{time: time.Now().Add(-2 * hurriedEvery)}
	found := map[string]storageDirs{"a": {}}
	l.restShare = 0.01
	for _, hurry := range []bool{false, true, false} {
		l.Hurry(hurry)
		if _, due := l.oldest(found); due != hurry {
			t.Errorf("pod due with hurry %v: %v", hurry, due)
		}
		if got := l.share(); (got > 0.1) != hurry {
			t.Errorf("share of a core with hurry %v = %v", hurry, got)
		}
	}
}

// Before a victim is chosen for a disk, figures from before the shortage are renewed; those of
// pods with limits are renewed often.
func TestFiguresOnDemand(t *testing.T) {
	now := time.Now()
	l := newStorageLoop(&storageWalker{}, storageEvery)
	found := map[string]storageDirs{"old": {}, "young": {}}
	l.keep(found, nil)
	l.pods["old"], l.pods["young"] = &storage{time: now.Add(-30 * time.Second)}, &storage{time: now}
	due := func() string {
		uid, due := l.oldest(found)
		if !due {
			return ""
		}
		return uid
	}
	if got := due(); got != "" || l.Fresh(now.Add(-time.Second)) || !l.Fresh(now.Add(-time.Minute)) {
		t.Errorf("due pod before the demand = %q", got)
	}
	l.Demand(now.Add(-time.Second))
	if got := due(); got != "old" {
		t.Errorf("due pod after the demand = %q", got)
	}
	l.pods["old"].time = now
	if got := due(); got != "" || !l.Fresh(now.Add(-time.Second)) {
		t.Errorf("due pod after the measurement = %q", got)
	}
	l.pods["young"].time = now.Add(-2 * eagerEvery)
	l.demanded = time.Time{}
	l.SetEager(map[string]bool{"young": true, "gone": true})
	if got := due(); got != "young" {
		t.Errorf("due pod with its own limit = %q", got)
	}
	delete(l.pods, "old")
	if l.Fresh(time.Time{}) {
		t.Error("a pod that was never measured is fresh")
	}
}
