package frames

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	v1 "k8s.io/api/core/v1"

	"jettison/internal/base/retry"
)

// bounds are how much is recorded.
type bounds struct {
	// fileBytes and fileAge are when a new file is begun; files is how many there are at most, the one
	// that is written to included.
	fileBytes int64
	fileAge   time.Duration
	files     int
	// perMinute, in bytes of compressed frames, is never exceeded; frames of events may take half of
	// it.
	perMinute int64
	queue     int // frames that wait to be written
}

// usual are the bounds. A frame of 110 pods with 2 containers each takes some 25 KB: 4 files last a
// day or two.
var usual = bounds{fileBytes: 16 << 20, fileAge: 6 * time.Hour, files: 4, perMinute: 2_000_000,
	queue: 8}

// Notice is what a recorder has to say.
type Notice struct {
	// Err is why frames are lost from now on: ErrBehind, ErrBudget, or what the file system said; nil:
	// they are written again.
	Err error
	// Lost is how many were until now.
	Lost int
}

// Why frames are lost that could have been written.
var (
	ErrBehind = errors.New("record: the disk does not keep up")
	ErrBudget = errors.New("record: more frames than the budget of a minute has room for")
)

// Recorder writes frames to a file, each compressed on its own and whole in the file before the
// next one: a process that dies loses at most those that wait. It never blocks its caller.
type Recorder struct {
	path   string
	report func(Notice)
	queue  chan queued
	done   chan struct{}

	mu      sync.Mutex
	closed  bool
	behind  int           // frames lost since the queue is full
	dropped atomic.Uint64 // frames lost since the start

	// Of the goroutine.
	segment segment
	budget  budget
	gzip    *gzip.Writer
	buf     bytes.Buffer
	objects []*v1.Pod // written last to this file; nil: none were
	size    int64     // of the last frame
	failed  trouble
	over    trouble
}

type queued struct {
	frame *Frame
	extra bool
}

// trouble is a row of frames that were lost for one cause.
type trouble struct {
	text  string
	lost  int
	since time.Time
}

// NewRecorder starts a recorder to a file; older ones are FILE.1 and so on. It opens nothing yet:
// what is wrong with the file is reported, and tried again with each frame. report is called when
// frames begin to be lost and when they are written again, from Record and from the recorder's own
// goroutine. It must not block.
func NewRecorder(path string, report func(Notice)) (*Recorder, error) {
	return boundedRecorder(path, usual, report)
}

func boundedRecorder(path string, b bounds, report func(Notice)) (*Recorder, error) {
	if base := filepath.Base(path); path == "" || base == "." || base == "/" {
		return nil, fmt.Errorf("record: %q is no file", path)
	}
	r := &Recorder{
		path: path, report: report, queue: make(chan queued, b.queue), done: make(chan struct{}),
		budget:  budget{perMinute: b.perMinute},
		segment: segment{path: path, files: b.files, most: b.fileBytes, age: b.fileAge},
	}
	var err error
	if r.gzip, err = gzip.NewWriterLevel(&r.buf, gzip.BestSpeed); err != nil {
		return nil, err
	}
	go r.run()
	return r, nil
}

// Record has a frame written that FromLook made; the recorder owns it from now on. An extra one, of
// an event between the regular looks, is dropped where the budget has no room for it. Where too
// many wait, the frame is dropped. It never blocks. After Close it does nothing.
func (r *Recorder) Record(f *Frame, extra bool) {
	r.mu.Lock()
	lost := 0
	if !r.closed {
		select {
		case r.queue <- queued{f, extra}:
		default:
			r.behind++
			r.dropped.Add(1)
			lost = r.behind
		}
	}
	r.mu.Unlock()
	if lost == 1 {
		r.report(Notice{Err: ErrBehind, Lost: 1})
	}
}

// Close writes what waits and closes the file. A disk that hangs is waited for so long at most;
// then the goroutine that hangs on it is left behind, and that is the error.
func (r *Recorder) Close(atMost time.Duration) error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.queue)
	}
	r.mu.Unlock()
	if !retry.Await(r.done, atMost) {
		return fmt.Errorf("record: %s did not take the last frames within %v", r.path, atMost)
	}
	return nil
}

func (r *Recorder) run() {
	defer close(r.done)
	defer r.segment.close()
	for q := range r.queue {
		r.mu.Lock()
		lost := r.behind
		r.behind = 0
		r.mu.Unlock()
		if lost > 0 {
			r.report(Notice{Lost: lost})
		}
		r.take(q)
	}
}

// take writes one frame, or says why not.
func (r *Recorder) take(q queued) {
	at := q.frame.At()
	// Most frames are like the one before: an extra one that has no room is not even encoded.
	if q.extra && !r.budget.allows(at, r.size, true) {
		r.lose(&r.over, at, ErrBudget)
		return
	}
	fresh := r.segment.fresh(at, r.size)
	if err := r.encode(q.frame, fresh); err != nil {
		r.lose(&r.failed, at, err)
		return
	}
	if !fresh && r.segment.fresh(at, int64(r.buf.Len())) { // it is larger than the last one was
		fresh = true
		if err := r.encode(q.frame, true); err != nil {
			r.lose(&r.failed, at, err)
			return
		}
	}
	r.size = int64(r.buf.Len())
	if !r.budget.allows(at, r.size, q.extra) {
		r.lose(&r.over, at, ErrBudget)
		return
	}
	if fresh {
		if err := r.segment.begin(); err != nil {
			r.lose(&r.failed, at, err)
			return
		}
	}
	if err := r.segment.write(r.buf.Bytes(), at); err != nil {
		r.objects = nil
		r.lose(&r.failed, at, err)
		return
	}
	r.objects = q.frame.objects
	r.budget.spend(at, r.size)
	r.found(&r.failed)
	// not each time that one more has room
	if at.Sub(r.over.since) >= time.Minute || at.Before(r.over.since) {
		r.found(&r.over)
	}
}

// lose counts a frame and reports the first of a row.
func (r *Recorder) lose(t *trouble, at time.Time, err error) {
	r.dropped.Add(1)
	if t.lost++; t.lost == 1 {
		t.since = at
	}
	if t.text != err.Error() {
		t.text = err.Error()
		r.report(Notice{Err: err, Lost: t.lost})
	}
}

// found ends a row.
func (r *Recorder) found(t *trouble) {
	if t.lost > 0 {
		r.report(Notice{Lost: t.lost})
		*t = trouble{}
	}
}

// prepare completes a frame: objects are in it where the file does not have them yet, and what no
// Reader would take is not.
func (r *Recorder) prepare(f *Frame, fresh bool) {
	f.Pods = nil
	if f.objects != nil && (fresh || r.objects == nil || !slices.Equal(r.objects, f.objects)) {
		f.Pods = make([]v1.Pod, 0, len(f.objects))
		for _, p := range f.objects {
			f.Pods = append(f.Pods, strip(p))
		}
	}
	for _, v := range []any{f.Summary, f.AfterReclaim, f.Agent, f.AgentAfterReclaim} {
		plausible(reflect.ValueOf(v).Elem())
	}
}

// marshal writes a frame as a line.
func marshal(w io.Writer, f *Frame) error {
	err := json.MarshalWrite(w, f, writing)
	if err == nil {
		_, err = w.Write([]byte("\n"))
	}
	return err
}

// encode makes a compressed line of a frame.
func (r *Recorder) encode(f *Frame, fresh bool) error {
	r.prepare(f, fresh)
	r.buf.Reset()
	r.gzip.Reset(&r.buf)
	err := marshal(r.gzip, f)
	if err == nil {
		err = r.gzip.Close()
	}
	if err != nil {
		return fmt.Errorf("record: encoding the frame of %s: %w", f.Time, err)
	}
	return nil
}
