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

// bounds limit the recording.
type bounds struct {
	// A new file starts after fileBytes or fileAge. files is the maximum number of files, including
	// the current one.
	fileBytes int64
	fileAge   time.Duration
	files     int
	// perMinute is the maximum number of bytes of compressed frames. Frames of events may use half
	// of it.
	perMinute int64
	queue     int // frames that wait to be written
}

// defaultBounds are the default bounds. A frame of 110 pods with 2 containers each has about 25 KB: 4 files
// last a day or two.
var defaultBounds = bounds{fileBytes: 16 << 20, fileAge: 6 * time.Hour, files: 4, perMinute: 2_000_000,
	queue: 8}

// Notice is a report of a recorder.
type Notice struct {
	// Err is the reason for lost frames from now on: ErrBehind, ErrBudget, or an error of the file
	// system; nil: frames are written again.
	Err error
	// Lost is the number of lost frames until now.
	Lost int
}

// Reasons for lost frames other than errors of the file system.
var (
	ErrBehind = errors.New("record: the disk is too slow")
	ErrBudget = errors.New("record: the frames exceed the budget per minute")
)

// Recorder writes frames to a file. Each is compressed separately and complete in the file before
// the next one, so a process that dies loses only queued frames. Recorder never blocks its caller.
type Recorder struct {
	path   string
	report func(Notice)
	queue  chan queued
	done   chan struct{}

	mu             sync.Mutex
	closed         bool
	droppedByQueue int           // frames lost while the queue is full
	dropped        atomic.Uint64 // frames lost since the start

	// The fields below belong to the goroutine.
	segment    segment
	budget     budget
	gzip       *gzip.Writer
	buf        bytes.Buffer
	objects    []*v1.Pod // last written to this file; nil: none
	size       int64     // of the last frame
	failed     lossSeries
	overBudget lossSeries
}

type queued struct {
	frame *Frame
	extra bool
}

// lossSeries is a series of frames lost for one reason.
type lossSeries struct {
	text  string
	lost  int
	since time.Time
}

// NewRecorder starts a recorder to a file; older files are FILE.1 and so on. It opens nothing yet:
// errors of the file are reported, and opening is retried with each frame. report is called when
// frames start to be lost and when they are written again, from Record and from the recorder's
// goroutine. It must not block.
func NewRecorder(path string, report func(Notice)) (*Recorder, error) {
	return boundedRecorder(path, defaultBounds, report)
}

func boundedRecorder(path string, b bounds, report func(Notice)) (*Recorder, error) {
	if base := filepath.Base(path); path == "" || base == "." || base == "/" {
		return nil, fmt.Errorf("record: %q is not a file name", path)
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

// Record queues a frame made by FromLook, and takes ownership of it. An extra frame, of an event
// between regular looks, is dropped if it exceeds the budget. If the queue is full, the frame is
// dropped. Record never blocks, and does nothing after Close.
func (r *Recorder) Record(f *Frame, extra bool) {
	r.mu.Lock()
	lost := 0
	if !r.closed {
		select {
		case r.queue <- queued{f, extra}:
		default:
			r.droppedByQueue++
			r.dropped.Add(1)
			lost = r.droppedByQueue
		}
	}
	r.mu.Unlock()
	if lost == 1 {
		r.report(Notice{Err: ErrBehind, Lost: 1})
	}
}

// Close writes the queued frames and closes the file. If the disk hangs longer than atMost, it
// returns an error and abandons the goroutine.
func (r *Recorder) Close(atMost time.Duration) error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.queue)
	}
	r.mu.Unlock()
	if !retry.Await(r.done, atMost) {
		return fmt.Errorf("record: last frames not written to %s within %v", r.path, atMost)
	}
	return nil
}

func (r *Recorder) run() {
	defer close(r.done)
	defer r.segment.close()
	for q := range r.queue {
		r.mu.Lock()
		lost := r.droppedByQueue
		r.droppedByQueue = 0
		r.mu.Unlock()
		if lost > 0 {
			r.report(Notice{Lost: lost})
		}
		r.take(q)
	}
}

// take writes one frame, or reports the reason for its loss.
func (r *Recorder) take(q queued) {
	at := q.frame.At()
	// The size of the last frame is an estimate: an extra frame that exceeds the budget is not even
	// encoded.
	if q.extra && !r.budget.allows(at, r.size, true) {
		r.drop(&r.overBudget, at, ErrBudget)
		return
	}
	fresh := r.segment.needsNewFile(at, r.size)
	if err := r.encode(q.frame, fresh); err != nil {
		r.drop(&r.failed, at, err)
		return
	}
	if !fresh && r.segment.needsNewFile(at, int64(r.buf.Len())) { // larger than the last frame
		fresh = true
		if err := r.encode(q.frame, true); err != nil {
			r.drop(&r.failed, at, err)
			return
		}
	}
	r.size = int64(r.buf.Len())
	if !r.budget.allows(at, r.size, q.extra) {
		r.drop(&r.overBudget, at, ErrBudget)
		return
	}
	if fresh {
		if err := r.segment.begin(); err != nil {
			r.drop(&r.failed, at, err)
			return
		}
	}
	if err := r.segment.write(r.buf.Bytes(), at); err != nil {
		r.objects = nil
		r.drop(&r.failed, at, err)
		return
	}
	r.objects = q.frame.objects
	r.budget.spend(at, r.size)
	r.resume(&r.failed)
	// at most once a minute
	if at.Sub(r.overBudget.since) >= time.Minute || at.Before(r.overBudget.since) {
		r.resume(&r.overBudget)
	}
}

// drop counts a lost frame and reports the first of a series.
func (r *Recorder) drop(t *lossSeries, at time.Time, err error) {
	r.dropped.Add(1)
	if t.lost++; t.lost == 1 {
		t.since = at
	}
	if t.text != err.Error() {
		t.text = err.Error()
		r.report(Notice{Err: err, Lost: t.lost})
	}
}

// resume ends a series.
func (r *Recorder) resume(t *lossSeries) {
	if t.lost > 0 {
		r.report(Notice{Lost: t.lost})
		*t = lossSeries{}
	}
}

// prepare completes a frame: it adds objects that the file lacks, and removes values that a Reader
// would reject.
func (r *Recorder) prepare(f *Frame, fresh bool) {
	f.Pods = nil
	if f.objects != nil && (fresh || r.objects == nil || !slices.Equal(r.objects, f.objects)) {
		f.Pods = make([]v1.Pod, 0, len(f.objects))
		for _, p := range f.objects {
			f.Pods = append(f.Pods, strip(p))
		}
	}
	for _, v := range []any{f.Summary, f.AfterReclaim, f.Agent, f.AgentAfterReclaim} {
		removeImplausible(reflect.ValueOf(v).Elem())
	}
}

// marshal writes a frame as one line.
func marshal(w io.Writer, f *Frame) error {
	err := json.MarshalWrite(w, f, writing)
	if err == nil {
		_, err = w.Write([]byte("\n"))
	}
	return err
}

// encode writes the compressed line of a frame to buf.
func (r *Recorder) encode(f *Frame, fresh bool) error {
	r.prepare(f, fresh)
	r.buf.Reset()
	r.gzip.Reset(&r.buf)
	err := marshal(r.gzip, f)
	if err == nil {
		err = r.gzip.Close()
	}
	if err != nil {
		return fmt.Errorf("record: encode the frame of %s: %w", f.Time, err)
	}
	return nil
}
