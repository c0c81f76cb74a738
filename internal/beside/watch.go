package beside

import (
	"fmt"
	"log/slog"
	"time"
)

// every is between two searches that Tick starts. One comes before each eviction that is for a disk, too (LookNow).
const every = time.Minute

// Result is what a search has found.
type Result struct {
	Found    bool
	Evidence string // by what; of a search that found none it is empty
	At       time.Time
}

// WatchOptions are those of NewWatch.
type WatchOptions struct {
	ProcMount string // empty: /proc
	Log       *slog.Logger
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
	pending  chan struct{} // closed at the end of a search whose result was not taken yet; nil: there is none
	results  chan Result   // one slot
}

// searcher is what a search beside the loop has of a Watch. It is safe for concurrent use.
type searcher struct {
	kubelet func() (found bool, why string)
}

func (s *searcher) search() Result {
	found, why := s.kubelet()
	return Result{Found: found, Evidence: why, At: time.Now()}
}

// NewWatch makes a Watch that has not looked yet. Until it has, no kubelet is there. Close it.
func NewWatch(o WatchOptions) *Watch {
	var finder Finder
	kubelet := func() (bool, string) { return finder.Kubelet(o.ProcMount) }
	return &Watch{o: o, searcher: &searcher{kubelet}, results: make(chan Result, 1)}
}

// Found reports whether a kubelet was there when it was last looked for.
func (w *Watch) Found() bool { return w.found }

// LookNow looks for one and waits for the answer: for what is about to be done on its account. It reports whether that has changed.
func (w *Watch) LookNow() (changed bool) { return w.learn(w.searcher.search()) }

// Tick starts a search beside the loop if one is due and none is under way.
func (w *Watch) Tick(now time.Time) {
	if w.pending != nil || now.Sub(w.looked) < every {
		return
	}
	s, results, done := w.searcher, w.results, make(chan struct{})
	w.pending = done
	go func() {
		defer close(done)
		results <- s.search() // the slot is free: the next search starts once OnResult has taken this one
	}()
}

// Results is where a search that Tick has started hands over what it has found. It is for OnResult.
func (w *Watch) Results() <-chan Result { return w.results }

// OnResult takes what came from Results, and reports whether it has changed.
func (w *Watch) OnResult(r Result) (changed bool) {
	w.pending = nil
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

// Close waits for the search under way, but not longer than limit: a process may hold what is read of it.
func (w *Watch) Close(limit time.Duration) error {
	if w.pending == nil {
		return nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.pending:
		return nil
	case <-timer.C:
		return fmt.Errorf("a search for a kubelet does not end within %v", limit)
	}
}
