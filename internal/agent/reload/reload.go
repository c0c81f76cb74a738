// Package reload has the configuration read again while the agent runs: when it is told to
// (SIGHUP), and when a file of it has changed.
//
//	reload.go  Reloader: reads it, beside the loop
//	files.go   what of files has changed
//	part.go    Part: takes it or keeps the one before, for the loop
package reload

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"jettison/internal/base/retry"
	"jettison/internal/node/config"
)

// A change is read when nothing more has happened for settle: whoever writes a file writes it in
// parts. Where nothing tells of changes, as of a folder that is made later or of a kubelet that
// begins anew, they are looked for every lookEvery; and every blindEvery where the kernel watches
// no file for this process (fs.inotify.max_user_instances).
const (
	settle     = 250 * time.Millisecond
	lookEvery  = time.Minute
	blindEvery = 10 * time.Second
)

// mostReads of a configuration in a row, whose files are others each time.
const mostReads = 3

// Result is what was read.
type Result struct {
	Time   time.Time
	Loaded *config.Loaded // nil: Err says why
	Err    error          // one line: the file, the line, the field
	Asked  bool           // somebody asked for it; else files have changed
}

// Options of Start.
type Options struct {
	Find    func(context.Context) (*config.Loaded, error) // reads the configuration
	Running *config.Loaded                                // that was read at the start
	Asks    <-chan os.Signal                              // each has it read
	Log     *slog.Logger
}

// Reloader reads the configuration again beside the loop.
type Reloader struct {
	o       Options
	results chan Result
	cancel  context.CancelFunc
	done    sync.WaitGroup

	files   []string          // whose changes count
	seen    string            // their stamp when they were last read here; empty: they were not
	again   bool              // what was read was not whole
	watcher *fsnotify.Watcher // nil: there is none
}

// Start starts a Reloader. Close it.
func Start(o Options) *Reloader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reloader{o: o, results: make(chan Result), cancel: cancel, files: o.Running.Files}
	var err error
	if r.watcher, err = fsnotify.NewWatcher(); err != nil {
		o.Log.Warn("changes of the configuration are seen late", "every", blindEvery, "error", err)
	}
	r.watch()
	r.done.Go(func() { r.run(ctx) })
	return r
}

// Results is where it hands over what it has read.
func (r *Reloader) Results() <-chan Result { return r.results }

// Close ends it, and waits for that so long: a file system may hang.
func (r *Reloader) Close(limit time.Duration) error {
	r.cancel()
	if !retry.AwaitFunc(r.done.Wait, limit) {
		return errors.New("the configuration is still being read: a file system that hangs")
	}
	if r.watcher != nil {
		return r.watcher.Close()
	}
	return nil
}

// watch has the kernel tell of changes in the folders that the files lie in now. One that is not
// there is looked at later.
func (r *Reloader) watch() {
	if r.watcher == nil {
		return
	}
	want := folders(r.files)
	for _, path := range r.watcher.WatchList() {
		if !slices.Contains(want, path) {
			_ = r.watcher.Remove(path) // it may be gone
		}
	}
	for _, path := range want {
		_ = r.watcher.Add(path)
	}
}

func (r *Reloader) run(ctx context.Context) {
	var events chan fsnotify.Event
	var errs chan error
	every := blindEvery
	if r.watcher != nil {
		events, errs, every = r.watcher.Events, r.watcher.Errors, lookEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop() // the first is at once: a file may have changed since the agent read it
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-events:
			settled.Reset(settle)
			continue
		case err := <-errs: // an overflow: anything may have changed
			r.o.Log.Warn("changes of the configuration may have been missed", "error", err)
			settled.Reset(settle)
			continue
		case <-r.o.Asks:
			asked = true
		case <-settled.C:
		case <-tick.C:
			r.watch()
		}
		if !asked && !r.again && stamp(r.files) == r.seen {
			continue
		}
		result := r.read(ctx, asked)
		if ctx.Err() != nil {
			return
		}
		select {
		case r.results <- result:
		case <-ctx.Done():
			return
		}
	}
}

// read reads the configuration until its files are those whose changes are seen.
func (r *Reloader) read(ctx context.Context, asked bool) Result {
	for n := 1; ; n++ {
		r.seen = stamp(r.files) // before: what changes meanwhile is seen later
		l, err := r.o.Find(ctx)
		if err == nil && !slices.Equal(l.Files, r.files) && r.o.Running.LessThan(l) == nil {
			r.files = l.Files
			r.watch()
			if n < mostReads {
				continue
			}
		}
		if err == nil {
			err = r.o.Running.LessThan(l)
		}
		r.watch()                                     // a link may lead elsewhere
		r.again = errors.Is(err, config.ErrNoKubelet) // no change of a file tells of its return
		if err != nil {
			return Result{Time: time.Now(), Err: err, Asked: asked}
		}
		r.o.Running = l
		return Result{Time: time.Now(), Loaded: l, Asked: asked}
	}
}
