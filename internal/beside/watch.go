package beside

import (
	"fmt"
	"log/slog"
	"time"
)

const (
	// every is between two searches that Tick starts. One comes before each eviction that is for a disk, too (LookNow).
	every = time.Minute
	// again is that for a kubelet which is not there now, and is waited for: one that restarts may be up for moments only.
	again = 10 * time.Second
)

// Result is what a search has found.
type Result struct {
	Found    bool
	Evidence string // by what; of a search that found none it is empty
	At       time.Time
	Err      error // what earlier searches have seen could not be kept
}

// WatchOptions are those of NewWatch.
type WatchOptions struct {
	Presence *Presence
	Log      *slog.Logger
	// Fields are further ones of the line that says that a kubelet has come or gone: what follows from it. nil: there are none.
	Fields func() []any
}

// Watch is the one place that knows whether a kubelet is on this node, for a loop that must not wait: a search takes the longer the more
// processes there are, tens of milliseconds for a few thousand. All of it is for the loop's goroutine.
type Watch struct {
	o        WatchOptions
	searcher *searcher
	found    bool
	looked   time.Time     // for it; zero: never
	pending  bool          // a search is under way, or its result was not taken yet
	ended    chan struct{} // closed when the last search has ended, and what it has seen is kept; nil: there was none
	results  chan Result   // one slot
	unkept   string        // why what was seen could not be kept, as it was last said
}

// searcher is what a search beside the loop has of a Watch. It is safe for concurrent use.
type searcher struct{ *Presence }

func (s *searcher) search() Result {
	found, why := s.Look()
	return Result{Found: found, Evidence: why, At: time.Now(), Err: s.Failed()}
}

// due is how long after the last search the next one is.
func (s *searcher) due() time.Duration {
	switch {
	case s.Unkept(): // by a search that could not wait for the disk
		return 0
	case s.Waiting():
		return again
	}
	return every
}

// NewWatch makes a Watch that has not looked yet. Until it has, no kubelet is there. Close it.
func NewWatch(o WatchOptions) *Watch {
	return &Watch{o: o, searcher: &searcher{o.Presence}, results: make(chan Result, 1)}
}

// Found reports whether a kubelet was there, or counted still (Presence), when it was last looked for.
func (w *Watch) Found() bool { return w.found }

// LookNow looks for one and waits for the answer: for what is about to be done on its account. It reports whether that has changed.
func (w *Watch) LookNow() (changed bool) { return w.learn(w.searcher.search()) }

// Tick starts a search beside the loop if one is due and none is under way.
func (w *Watch) Tick(now time.Time) {
	if w.pending || now.Sub(w.looked) < w.searcher.due() {
		return
	}
	s, results, ended := w.searcher, w.results, make(chan struct{})
	w.pending, w.ended = true, ended
	go func() {
		defer close(ended)
		results <- s.search() // the slot is free: the next search starts once OnResult has taken this one
		s.Keep()              // after it, for a disk may hang
	}()
}

// Results is where a search that Tick has started hands over what it has found. It is for OnResult.
func (w *Watch) Results() <-chan Result { return w.results }

// OnResult takes what came from Results, and reports whether it has changed.
func (w *Watch) OnResult(r Result) (changed bool) {
	w.pending = false
	text := ""
	if r.Err != nil {
		text = r.Err.Error()
	}
	if text != w.unkept && text != "" {
		w.o.Log.Warn("not as it should be", "error", r.Err)
	}
	w.unkept = text
	return w.learn(r)
}

// learn remembers what was found. A change is logged.
func (w *Watch) learn(r Result) (changed bool) {
	w.looked = r.At
	if r.Found == w.found {
		return false
	}
	w.found = r.Found
	fields := []any{"beside", r.Found, "evidence", r.Evidence}
	if w.o.Fields != nil {
		fields = append(fields, w.o.Fields()...)
	}
	w.o.Log.Info("kubelet", fields...)
	return true
}

// Close waits for the search under way, but not longer than limit: a process may hold what is read of it, and a disk what is written.
func (w *Watch) Close(limit time.Duration) error {
	if w.ended == nil {
		return nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("a search for a kubelet does not end within %v", limit)
	}
}
