package kubeletdetect

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newTestWatch returns a Watch of a node on which *found controls the kubelet. Each search takes
// that long.
func newTestWatch(t *testing.T, found *bool, takes time.Duration) (w *Watch, searches *atomic.Int64, log *bytes.Buffer) {
	t.Helper()
	log, searches = new(bytes.Buffer), new(atomic.Int64)
	mode := func() []any {
		if w.Found() {
			return []any{"disk", "observe"}
		}
		return []any{"disk", "act"}
	}
	p := newTestPresence(t, "", "one", new(time.Duration))
	p.uptime = monotonic()
	p.kubelet = func() (bool, string) {
		searches.Add(1)
		time.Sleep(takes)
		if *found {
			return true, "process 7 is a kubelet"
		}
		return false, ""
	}
	w = NewWatch(WatchOptions{Presence: p, Log: slog.New(slog.NewTextHandler(log, nil)), Fields: mode})
	return w, searches, log
}

// A background search detects the start or end of a kubelet within a minute, and logs each once.
func TestWatchDetectsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := false
		w, searches, log := newTestWatch(t, &here, 30*time.Millisecond)
		if w.LookNow() || w.Found() || log.Len() > 0 {
			t.Errorf("at the start, without a kubelet: found %v, log %q", w.Found(), log)
		}
		for _, c := range []struct {
			here, changed bool
			line          string
		}{
			{true, true, `present=true evidence="process 7 is a kubelet" disk=observe`},
			{true, false, ""},
			{false, true, `present=false evidence="" disk=act`},
		} {
			log.Reset()
			here = c.here
			began := searches.Load()
			if w.Tick(time.Now()); w.pending {
				t.Fatal("Tick starts a search before it is due")
			}
			if !c.here { // it may be restarting, so it counts as present
				for time.Sleep(searchPeriod); w.searcher.absent < Absence-presencePeriod; time.Sleep(presencePeriod) {
					if w.Tick(time.Now()); w.OnResult(<-w.Results()) || !w.Found() {
						t.Fatalf("kubelet counts as gone after %v", w.searcher.absent)
					}
				}
				began = searches.Load()
			}
			time.Sleep(searchPeriod)
			before := w.Found()
			w.Tick(time.Now())
			w.Tick(time.Now()) // one runs already
			if w.Found() != before {
				t.Error("Found changed before OnResult")
			}
			changed := w.OnResult(<-w.Results())
			if changed != c.changed || w.Found() != c.here || searches.Load() != began+1 {
				t.Errorf("kubelet %v: changed %v, found %v, %d searches", c.here, changed, w.Found(), searches.Load()-began)
			}
			if got := log.String(); !strings.Contains(got, c.line) || c.line == "" && got != "" || strings.Count(got, "\n") > 1 {
				t.Errorf("kubelet %v: logged %q, want %q", c.here, got, c.line)
			}
		}
		if err := w.Close(time.Second); err != nil {
			t.Error(err)
		}
	})
}

// FoundLately searches once a second, however often it is called.
func TestFoundLatelySearchesOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := false
		w, searches, _ := newTestWatch(t, &here, 0)
		for i := range 25 {
			if w.FoundLately(time.Now()) != (i >= 10) || searches.Load() != int64(i/10+1) {
				t.Errorf("after %d ms: found %v after %d searches", 100*i, w.Found(), searches.Load())
			}
			here = i >= 1
			time.Sleep(resultLifetime / 10)
		}
	})
}

// LookNow waits for its own search while another one runs.
func TestLookNowWaitsForItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := true
		w, searches, _ := newTestWatch(t, &here, 30*time.Millisecond)
		w.Tick(time.Now())
		if !w.LookNow() || !w.Found() {
			t.Error("LookNow did not find the kubelet")
		}
		if w.pending || searches.Load() != 2 {
			t.Errorf("LookNow made %d searches, want its own after the running one", searches.Load())
		}
	})
}

// LookNow waits for lookNowTimeout at most if a search is slow or hangs, and uses the last result. Without
// a result a kubelet counts as present. OnResult receives the late result.
func TestLookNowDoesNotWaitForASlowSearch(t *testing.T) {
	for name, c := range map[string]struct{ before, here, want bool }{
		"at the start":          {want: true},
		"none was there":        {before: true},
		"one was there":         {before: true, here: true, want: true},
		"at the start, and one": {here: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, searches, log := newTestWatch(t, &c.here, 30*time.Millisecond)
				if c.before {
					w.LookNow()
				}
				quick := w.searcher.kubelet
				w.searcher.kubelet = func() (bool, string) {
					time.Sleep(5 * time.Minute)
					return quick()
				}
				for range 3 {
					began := time.Now()
					if w.LookNow(); time.Since(began) > lookNowTimeout || w.Found() != c.want {
						t.Errorf("found %v after %v, want %v after %v", w.Found(), time.Since(began), c.want, lookNowTimeout)
					}
				}
				for range 4 {
					time.Sleep(30 * time.Second)
					w.Tick(time.Now())
				}
				if strings.Count(log.String(), "kubelet search is slow") != 1 {
					t.Errorf("log of a slow search = %q", log)
				}
				began := searches.Load()
				if w.OnResult(<-w.Results()); w.Found() != c.here || searches.Load() != began+1 {
					t.Errorf("after the slow search: found %v, %d searches", w.Found(), searches.Load()-began)
				}
			})
		})
	}
}

// Close waits for the running search, up to its limit. It returns immediately if no search ran, or
// if the result was not read.
func TestCloseOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := true
		w, _, _ := newTestWatch(t, &here, time.Second)
		if err := w.Close(0); err != nil {
			t.Error(err)
		}
		w.Tick(time.Now())
		if err := w.Close(100 * time.Millisecond); err == nil {
			t.Error("Close returns no error while the search runs")
		}
		began := time.Now()
		if err := w.Close(time.Minute); err != nil || time.Since(began) != 900*time.Millisecond {
			t.Errorf("Close = %v after %v, want nil at the end of the search", err, time.Since(began))
		}
		if err := w.Close(time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// A Watch searches /proc if it has no stub.
func TestWatchReadsProc(t *testing.T) {
	proc := node(process("812", "kubelet", "/usr/bin/kubelet", system)).write(t)
	p, err := OpenPresence(PresenceOptions{ProcMount: proc})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWatch(WatchOptions{Presence: p, Log: slog.New(slog.DiscardHandler)})
	if !w.LookNow() || !w.Found() {
		t.Error("the kubelet was not found")
	}
	if r := w.searcher.search(); !r.Found || r.Evidence != "process 812 is a kubelet" {
		t.Errorf("result of the search = %+v, want the kubelet", r)
	}
}
