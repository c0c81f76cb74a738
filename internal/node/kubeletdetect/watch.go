package kubeletdetect

import (
	"fmt"
	"log/slog"
	"time"

	"jettison/internal/base/retry"
)

const (
	// every is between two searches that Tick starts. One comes before each eviction that is for a
	// disk, too (LookNow).
	every = time.Minute
	// again is that for a kubelet which is not there now, and is waited for: one that restarts may be
	// up for moments only.
	again = 10 * time.Second
	// nowWait is how long LookNow waits. A search takes tens of milliseconds for a few thousand
	// processes.
	nowWait = 100 * time.Millisecond
	// lately is how long the answer to LookNow holds for who asks again and again, however many do.
	lately = time.Second
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
	// Fields are further ones of the line that says that a kubelet has come or gone: what follows from
	// it. nil: there are none.
	Fields func() []any
}

// Watch is the one place that knows whether a kubelet is on this node, for a loop that must not
// wait: a search takes the longer the more processes and listeners there are, and each is one's who
// may slow it. So there is one search at a time, beside the loop. All of it is for the loop's
// goroutine.
type Watch struct {
	o        WatchOptions
	searcher *searcher
	found    bool
	looked   time.Time // for it; zero: never
	asked    time.Time // the last LookNow of FoundLately
	began    time.Time // the last search
	slow     bool      // that it does not end was said
	pending  bool      // a search is under way, or its result was not taken yet
	// closed when the last search has ended, and what it has seen is kept; nil: there was none
	ended   chan struct{}
	results chan Result // one slot
	unkept  string      // why what was seen could not be kept, as it was last said
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

// Found reports whether a kubelet was there, or counted still (Presence), when it was last looked
// for.
func (w *Watch) Found() bool { return w.found }

// LookNow looks for one and waits a moment for the answer: for what is about to be done on its
// account. Where none comes in time, the last one holds, and where there was none yet, a kubelet
// may be there, so that it counts as one. What comes later is for OnResult. It reports whether what
// is known has changed.
func (w *Watch) LookNow() (changed bool) {
	was := w.found
	timer := time.NewTimer(nowWait)
	defer timer.Stop()
	// a search that is under way began before, and may have missed it
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
				w.set(true, "a kubelet may run, the search for it does not end")
			}
			return w.found != was
		}
	}
	return w.found != was
}

// FoundLately is Found by a LookNow that was made within the last second: for what is about to be
// done, and may be asked for often.
func (w *Watch) FoundLately(now time.Time) bool {
	if w.asked.IsZero() || now.Sub(w.asked) >= lately {
		w.asked = now
		w.LookNow()
	}
	return w.found
}

// Tick starts a search beside the loop if one is due and none is under way.
func (w *Watch) Tick(now time.Time) {
	switch {
	case !w.pending && now.Sub(w.looked) >= w.searcher.due():
		w.begin(now)
	case w.pending && !w.slow && now.Sub(w.began) >= every:
		w.slow = true
		w.o.Log.Warn("the search for a kubelet does not end: what it found last counts", "since", w.began,
			"beside", w.found)
	}
}

// begin starts a search. None is under way.
func (w *Watch) begin(now time.Time) {
	s, results, ended := w.searcher, w.results, make(chan struct{})
	w.pending, w.ended, w.began, w.slow = true, ended, now, false
	go func() {
		defer close(ended)
		results <- s.search() // the slot is free: the next search starts once OnResult has taken this one
		s.Keep()              // after it, for a disk may hang
	}()
}

// Results is where a search hands over what it has found. It is for OnResult.
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
	return w.set(r.Found, r.Evidence)
}

func (w *Watch) set(found bool, evidence string) (changed bool) {
	if found == w.found {
		return false
	}
	w.found = found
	fields := []any{"beside", found, "evidence", evidence}
	if w.o.Fields != nil {
		fields = append(fields, w.o.Fields()...)
	}
	w.o.Log.Info("kubelet", fields...)
	return true
}

// Close waits for the search under way, but not longer than limit: a process may hold what is read
// of it, and a disk what is written.
func (w *Watch) Close(limit time.Duration) error {
	if w.ended == nil {
		return nil
	}
	if !retry.Await(w.ended, limit) {
		return fmt.Errorf("a search for a kubelet does not end within %v", limit)
	}
	return nil
}
