// Package reload reads the configuration again while the agent runs: on SIGHUP, and when one of its
// files changes.
//
//	reload.go  Reloader: reads the configuration, outside the loop
//	files.go   detects changes of files
//	part.go    Part: applies a configuration or keeps the current one, for the loop
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

// Changes are read when none has followed for settle, since a writer may write in parts. A poll
// every pollInterval finds changes without notifications, such as a directory that is created later
// or a kubelet that restarts. Without inotify watches (fs.inotify.max_user_instances) the poll runs
// every fallbackInterval.
const (
	settle           = 250 * time.Millisecond
	pollInterval     = time.Minute
	fallbackInterval = 10 * time.Second
)

// maxReads bounds the reads in a row if each finds other files.
const maxReads = 3

// Result is a read configuration or an error.
type Result struct {
	Time      time.Time
	Loaded    *config.Loaded // nil: see Err
	Err       error          // one line with file, line and field
	Requested bool           // by a signal; otherwise files have changed
}

// Options of Start.
type Options struct {
	Find    func(context.Context) (*config.Loaded, error) // reads the configuration
	Running *config.Loaded                                // as read at the start
	Signals <-chan os.Signal                              // each triggers a read
	Log     *slog.Logger
}

// Reloader reads the configuration again, outside the loop.
type Reloader struct {
	o       Options
	results chan Result
	cancel  context.CancelFunc
	done    sync.WaitGroup

	files   []string          // the watched files
	seen    string            // their stamp at the last read; empty: not read yet
	retry   bool              // the last read was incomplete
	watcher *fsnotify.Watcher // nil: not available
}

// Start starts a Reloader. The caller must Close it.
func Start(o Options) *Reloader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reloader{o: o, results: make(chan Result), cancel: cancel, files: o.Running.Files}
	var err error
	if r.watcher, err = fsnotify.NewWatcher(); err != nil {
		//log: The kernel provides no file watch to the agent, because the limit
		//  fs.inotify.max_user_instances is reached. The agent polls its configuration files
		//  instead.
		//do: Raise fs.inotify.max_user_instances, or accept that changes take effect a few seconds
		//  later.
		o.Log.Warn("configuration watch unavailable, polling", "every", fallbackInterval, "error", err)
	}
	r.watch()
	r.done.Go(func() { r.run(ctx) })
	return r
}

// Results returns the channel of read configurations.
func (r *Reloader) Results() <-chan Result { return r.results }

// Close ends the Reloader. It returns an error if that takes longer than limit, because a file
// system hangs.
func (r *Reloader) Close(limit time.Duration) error {
	r.cancel()
	if !retry.AwaitFunc(r.done.Wait, limit) {
		return errors.New("reading the configuration does not end: a file system hangs")
	}
	if r.watcher != nil {
		return r.watcher.Close()
	}
	return nil
}

// watch watches the current directories of the files. Missing ones are checked by the poll.
func (r *Reloader) watch() {
	if r.watcher == nil {
		return
	}
	want := folders(r.files)
	for _, path := range r.watcher.WatchList() {
		if !slices.Contains(want, path) {
			_ = r.watcher.Remove(path) // it may be removed already
		}
	}
	for _, path := range want {
		_ = r.watcher.Add(path)
	}
}

func (r *Reloader) run(ctx context.Context) {
	var events chan fsnotify.Event
	var errs chan error
	interval := fallbackInterval
	if r.watcher != nil {
		events, errs, interval = r.watcher.Events, r.watcher.Errors, pollInterval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop() // fires immediately: a file may have changed since the agent read it
	for {
		requested := false
		select {
		case <-ctx.Done():
			return
		case <-events:
			settled.Reset(settle)
			continue
		case err := <-errs: // an overflow: any file may have changed
			//log: The kernel's queue of file notifications overflowed. The agent checks its
			//  configuration files now.
			//do: Nothing. If it repeats, find the program that changes files in the configuration's
			//  directories all the time.
			r.o.Log.Warn("configuration watch lost events, checking files", "error", err)
			settled.Reset(settle)
			continue
		case <-r.o.Signals:
			requested = true
		case <-settled.C:
		case <-tick.C:
			r.watch()
		}
		if !requested && !r.retry && stamp(r.files) == r.seen {
			continue
		}
		result := r.read(ctx, requested)
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

// read reads the configuration until its files are the watched ones.
func (r *Reloader) read(ctx context.Context, requested bool) Result {
	for n := 1; ; n++ {
		r.seen = stamp(r.files) // before the read: later changes are detected
		l, err := r.o.Find(ctx)
		if err == nil && !slices.Equal(l.Files, r.files) && r.o.Running.CheckComplete(l) == nil {
			r.files = l.Files
			r.watch()
			if n < maxReads {
				continue
			}
		}
		if err == nil {
			err = r.o.Running.CheckComplete(l)
		}
		r.watch()                                     // a link may lead to another directory
		r.retry = errors.Is(err, config.ErrNoKubelet) // its return changes no file
		if err != nil {
			return Result{Time: time.Now(), Err: err, Requested: requested}
		}
		r.o.Running = l
		return Result{Time: time.Now(), Loaded: l, Requested: requested}
	}
}
