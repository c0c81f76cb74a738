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

// newTestWatch watches a node on which *found says whether a kubelet is there. Each search takes that long.
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

// A kubelet that comes and goes is found out beside the loop within a minute, and said once each.
func TestAWatchSeesAKubeletComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := false
		w, searches, log := newTestWatch(t, &here, 30*time.Millisecond)
		if w.LookNow() || w.Found() || log.Len() > 0 {
			t.Errorf("at the start, without one: found %v, %q", w.Found(), log)
		}
		for _, c := range []struct {
			here, changed bool
			line          string
		}{
			{true, true, `beside=true evidence="process 7 is a kubelet" disk=observe`},
			{true, false, ""},
			{false, true, `beside=false evidence="" disk=act`},
		} {
			log.Reset()
			here = c.here
			began := searches.Load()
			if w.Tick(time.Now()); w.pending {
				t.Fatal("it looks again at once")
			}
			if !c.here { // it may be starting anew, and is waited for
				for time.Sleep(every); w.searcher.absent < Absence-again; time.Sleep(again) {
					if w.Tick(time.Now()); w.OnResult(<-w.Results()) || !w.Found() {
						t.Fatalf("gone after %v", w.searcher.absent)
					}
				}
				began = searches.Load()
			}
			time.Sleep(every)
			before := w.Found()
			w.Tick(time.Now())
			w.Tick(time.Now()) // one is under way
			if w.Found() != before {
				t.Error("it is known before it is handed over")
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

// Who asks again and again has it looked for once a second, and no less often.
func TestAWatchLooksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := false
		w, searches, _ := newTestWatch(t, &here, 0)
		for i := range 25 {
			if w.FoundLately(time.Now()) != (i >= 10) || searches.Load() != int64(i/10+1) {
				t.Errorf("after %d ms: found %v, %d searches", 100*i, w.Found(), searches.Load())
			}
			here = i >= 1
			time.Sleep(lately / 10)
		}
	})
}

// What is about to be done waits for a look of its own, while another one is under way.
func TestLookNowWaitsForItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := true
		w, searches, _ := newTestWatch(t, &here, 30*time.Millisecond)
		w.Tick(time.Now())
		if !w.LookNow() || !w.Found() {
			t.Error("the kubelet was not found")
		}
		if w.pending || searches.Load() != 2 {
			t.Errorf("%d searches, want one of its own after the one under way", searches.Load())
		}
	})
}

// The loop waits no longer than a moment for a search that takes its time, or hangs: the last answer holds then. Where there was none yet, a
// kubelet may be there. What the search finds in the end is handed over as any other.
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
					if w.LookNow(); time.Since(began) > nowWait || w.Found() != c.want {
						t.Errorf("found %v after %v, want %v after %v", w.Found(), time.Since(began), c.want, nowWait)
					}
				}
				for range 4 {
					time.Sleep(30 * time.Second)
					w.Tick(time.Now())
				}
				if !strings.Contains(log.String(), "does not end") || strings.Count(log.String(), "does not end: what") != 1 {
					t.Errorf("logged %q", log)
				}
				began := searches.Load()
				if w.OnResult(<-w.Results()); w.Found() != c.here || searches.Load() != began+1 {
					t.Errorf("in the end: found %v, %d searches", w.Found(), searches.Load()-began)
				}
			})
		})
	}
}

// Close waits for the search under way, and not for ever. A Watch that never looked has nothing to wait for, and one whose search has ended
// may be closed without its result being taken.
func TestCloseOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := true
		w, _, _ := newTestWatch(t, &here, time.Second)
		if err := w.Close(0); err != nil {
			t.Error(err)
		}
		w.Tick(time.Now())
		if err := w.Close(100 * time.Millisecond); err == nil {
			t.Error("the search goes on, and Close does not say so")
		}
		began := time.Now()
		if err := w.Close(time.Minute); err != nil || time.Since(began) != 900*time.Millisecond {
			t.Errorf("%v after %v, want the end of the search", err, time.Since(began))
		}
		if err := w.Close(time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// Without a stub it looks at /proc, as a Finder does.
func TestAWatchLooksAtProc(t *testing.T) {
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
		t.Errorf("search: %+v", r)
	}
}
