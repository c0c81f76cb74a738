package kubeletdetect

import (
	"fmt"
	"log/slog"
	"time"

	"jettison/internal/base/retry"
)

const (
	// searchPeriod is the time between two searches that Tick starts. LookNow adds one before each
	// eviction for a disk.
	searchPeriod = time.Minute
	// presencePeriod is the time between two searches while a kubelet that does not run still counts as
	// present: a restarting one may be up for moments only.
	presencePeriod = 10 * time.Second
	// lookNowTimeout is the timeout of LookNow. A search takes tens of milliseconds for a few thousand
	// processes.
	lookNowTimeout = 100 * time.Millisecond
	// resultLifetime is the time for which FoundLately uses the last result of LookNow.
	resultLifetime = time.Second
)

// Result is the result of a search.
type Result struct {
	Found    bool
	Evidence string // empty if no kubelet was found
	At       time.Time
	Err      error // of saving the results of earlier searches
}

// WatchOptions are the options of NewWatch.
type WatchOptions struct {
	Presence *Presence
	Log      *slog.Logger
	// Fields returns further keys of the log line of a change, such as its consequences. nil: none.
	Fields func() []any
}

// Watch holds the last search result for a loop that must not wait: a search takes longer with more
// processes and listeners, and a user may slow it down. So one search at a time runs in the
// background. All methods are for the loop's goroutine.
type Watch struct {
	o        WatchOptions
	searcher *searcher
	found    bool
	looked   time.Time // of the last result; zero: never
	asked    time.Time // of the last LookNow by FoundLately
	began    time.Time // start of the last search
	slow     bool      // the search is slow, and that was logged
	pending  bool      // a search runs, or its result was not read yet
	// closed when the last search has ended and its result is saved; nil: no search ran
	ended         chan struct{}
	results       chan Result // one slot
	lastSaveError string      // last logged error of saving
}

// searcher is the part of a Watch that background searches use. It is safe for concurrent use.
type searcher struct{ *Presence }

func (s *searcher) search() Result {
	found, why := s.Look()
	return Result{Found: found, Evidence: why, At: time.Now(), Err: s.SaveError()}
}

// due returns the time from the last search to the next.
func (s *searcher) due() time.Duration {
	switch {
	case s.Unsaved(): // a search could not wait for the disk
		return 0
	case s.Waiting():
		return presencePeriod
	}
	return searchPeriod
}

// NewWatch creates a Watch that has not searched yet, and reports no kubelet until it has. The
// caller must call Close.
func NewWatch(o WatchOptions) *Watch {
	return &Watch{o: o, searcher: &searcher{o.Presence}, results: make(chan Result, 1)}
}

// Found reports whether the last search found a kubelet, or one still counted as present.
func (w *Watch) Found() bool { return w.found }

// LookNow searches and waits up to lookNowTimeout for the result, before an action that depends on it.
// Without a result in time it uses the last one, and without any, counts a kubelet as present.
// OnResult receives a late result. LookNow reports whether Found changed.
func (w *Watch) LookNow() (changed bool) {
	was := w.found
	timer := time.NewTimer(lookNowTimeout)
	defer timer.Stop()
	// a search that already runs may have missed the kubelet
	for own := false; w.pending || !own; {
		if !w.pending {
			own = true
			w.begin(time.Now())
		}
		select {
		case r := <-w.results:
			w.OnResult(r)
		case <-timer.C:
			if w.looked.IsZero() {
				w.set(true, "a kubelet may run, the first search has not ended")
			}
			return w.found != was
		}
	}
	return w.found != was
}

// FoundLately returns Found by a LookNow within the last second, for actions that are frequent.
func (w *Watch) FoundLately(now time.Time) bool {
	if w.asked.IsZero() || now.Sub(w.asked) >= resultLifetime {
		w.asked = now
		w.LookNow()
	}
	return w.found
}

// Tick starts a background search if one is due and none runs.
func (w *Watch) Tick(now time.Time) {
	switch {
	case !w.pending && now.Sub(w.looked) >= w.searcher.due():
		w.begin(now)
	case w.pending && !w.slow && now.Sub(w.began) >= searchPeriod:
		w.slow = true
		//log: The search of /proc for a kubelet runs longer than a minute. The agent uses the last result.
		//do: Check the node's CPU and memory load, and for processes that hang in the kernel (state D).
		w.o.Log.Warn("kubelet search is slow", "since", w.began, "present", w.found)
	}
}

// begin starts a search. The caller ensures that none runs.
func (w *Watch) begin(now time.Time) {
	s, results, ended := w.searcher, w.results, make(chan struct{})
	w.pending, w.ended, w.began, w.slow = true, ended, now, false
	go func() {
		defer close(ended)
		results <- s.search() // the slot is free: the next search starts after OnResult has read this one
		s.Save()              // last, because a disk may hang
	}()
}

// Results returns the channel of results for OnResult.
func (w *Watch) Results() <-chan Result { return w.results }

// OnResult applies a result from Results, and reports whether Found changed.
func (w *Watch) OnResult(r Result) (changed bool) {
	w.pending = false
	text := ""
	if r.Err != nil {
		text = r.Err.Error()
	}
	if text != w.lastSaveError && text != "" {
		//log: kubelet.json in stateDir could not be written. If the agent restarts now, the time since a
		//  kubelet was last seen is lost.
		//do: Correct the cause in error: permissions of stateDir, a full or read-only disk.
		w.o.Log.Warn("kubelet presence not saved", "error", r.Err)
	}
	w.lastSaveError = text
	return w.learn(r)
}

// learn stores a result and logs a change.
func (w *Watch) learn(r Result) (changed bool) {
	w.looked = r.At
	return w.set(r.Found, r.Evidence)
}

func (w *Watch) set(found bool, evidence string) (changed bool) {
	if found == w.found {
		return false
	}
	w.found = found
	fields := []any{"present", found, "evidence", evidence}
	if w.o.Fields != nil {
		fields = append(fields, w.o.Fields()...)
	}
	//log: A kubelet started or is gone (absent for 10 minutes), by evidence. disk is the
	//  resulting mode: with a kubelet the agent leaves disks to it unless the configuration sets disk.
	w.o.Log.Info("kubelet presence changed", fields...)
	return true
}

// Close waits for the running search, at most limit: a process may block its reads, and a disk its
// writes.
func (w *Watch) Close(limit time.Duration) error {
	if w.ended == nil {
		return nil
	}
	if !retry.Await(w.ended, limit) {
		return fmt.Errorf("kubelet search still running after %v", limit)
	}
	return nil
}
