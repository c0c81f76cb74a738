// Package nodestats provides the usage of the node and its pods in the kubelet's two forms: the
// Summary API and the resource metrics (pkg/kubelet/server/stats/handler.go,
// pkg/kubelet/metrics/collectors/resource_metrics.go, v1.37). It measures on its own, outside of
// the loop, and only on request.
//
//	nodestats.go  Taker: measures at most once a second
//	resource.go   Resource: resource metrics of a Summary
package nodestats

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/internal/node/summaryv1"
	"jettison/stats"
	"jettison/stats/read"
)

const (
	// maximum age of an answer: all requests within it share one measurement
	maxAge       = time.Second
	rateInterval = 250 * time.Millisecond // between the first two measurements, for the first rates
	idleTimeout  = 5 * time.Minute        // without a request, after which the reader is closed
	maxDiskAge   = 2 * time.Minute        // maximum age of the pods' disk usage, as in a kubelet
	lookTimeout  = 10 * time.Second       // timeout of one measurement
	closeWait    = time.Second
)

// ErrEarly reports that the runtime has not listed its pods yet.
var ErrEarly = errors.New("the runtime has not listed its pods yet")

// errLate reports a measurement that did not end in time.
var errLate = errors.New("the pods could not be read in time: reading blocks in the kernel, or " +
	"the node is short of CPU time")

// Options configures New.
type Options struct {
	// Open creates a reader for the Taker's own use. closer releases its resources.
	Open func() (reader *read.Reader, closer func(), err error)
	Node string // its name
}

// Taker takes Summaries. It is safe for concurrent use. Close it after use.
type Taker struct {
	o    Options
	pods atomic.Pointer[read.Index] // nil: not listed yet
	// background measures sources that may block; nil: the answer has neither file systems nor the
	// pods' usage of them.
	background atomic.Pointer[read.Background]
	slot       chan struct{} // one slot: its holder measures

	// The fields below belong to the holder of slot.
	reader    *read.Reader // nil: not open
	closer    func()
	scratch   stats.Summary     // the last measurement
	last      *v1alpha1.Summary // the same in the kubelet's form, immutable; nil: not requested yet
	idleTimer *time.Timer       // closes the reader; nil: not open
	closed    bool
	looks     sync.WaitGroup // measurements, also those after their timeout
}

// New creates a Taker with nothing opened yet.
func New(o Options) *Taker {
	return &Taker{o: o, slot: make(chan struct{}, 1)}
}

// SetPods sets the runtime's pods. The index must not change afterwards.
func (t *Taker) SetPods(pods read.Index) { t.pods.Store(&pods) }

// SetBackground sets the source of file systems and of the pods' usage of them.
func (t *Taker) SetBackground(b *read.Background) { t.background.Store(b) }

// Take returns a Summary of at most a second ago, which the caller must not change. Unreadable
// values are absent. full requests the pods' disk usage: if it is old, it is measured for a later
// Summary.
func (t *Taker) Take(ctx context.Context, full bool) (*v1alpha1.Summary, error) {
	if full {
		t.MeasureDisks()
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	got := make(chan *v1alpha1.Summary, 1)
	if err := t.Read(ctx, func(*stats.Summary) { got <- t.convert() }); err != nil {
		return nil, err
	}
	return <-got, nil
}

// MeasureDisks requests the pods' disk usage: what is older than maxDiskAge is measured again, for
// later answers. It does not wait.
func (t *Taker) MeasureDisks() {
	if b := t.background.Load(); b != nil {
		b.Demand(time.Now().Add(-maxDiskAge))
	}
}

// Read measures, unless the last measurement is at most a second old, and passes the result to use.
// Unreadable values are absent. If ctx ends first, Read returns an error, and use may still run:
// the Summary is valid until use returns.
func (t *Taker) Read(ctx context.Context, use func(*stats.Summary)) error {
	if t.pods.Load() == nil {
		return ErrEarly
	}
	select {
	case t.slot <- struct{}{}:
	case <-ctx.Done():
		return errLate
	}
	done := make(chan error, 1)
	t.looks.Go(func() {
		defer func() { <-t.slot }()
		err := t.measure(*t.pods.Load())
		if err == nil {
			use(&t.scratch)
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errLate
	}
}

// measure makes a full look, unless the last one is fresh.
func (t *Taker) measure(pods read.Index) error {
	now := time.Now()
	switch {
	case t.closed:
		return errors.New("the agent is shutting down")
	case t.reader != nil && now.Sub(t.scratch.Time) < maxAge:
		return nil
	}
	if t.reader == nil {
		var err error
		if t.reader, t.closer, err = t.o.Open(); err != nil {
			t.reader = nil
			return err
		}
		_ = t.reader.FindSelf() // the agent has logged the error at its start
		_ = t.reader.Collect(now, pods, &t.scratch)
		time.Sleep(rateInterval)
		now = time.Now()
	}
	t.last = nil
	_ = t.reader.Collect(now, pods, &t.scratch) // unreadable values are absent
	if b := t.background.Load(); b != nil {
		b.Fill(now, &t.scratch)
	}
	if t.idleTimer == nil {
		t.idleTimer = time.AfterFunc(idleTimeout, t.closeIdle)
	} else {
		t.idleTimer.Reset(idleTimeout)
	}
	return nil
}

// convert returns the last measurement in the kubelet's form.
func (t *Taker) convert() *v1alpha1.Summary {
	if t.last != nil {
		return t.last
	}
	out := summaryv1.From(&t.scratch, t.o.Node)
	known := out.Pods[:0]
	for _, p := range out.Pods {
		if p.PodRef.Name != "" { // a pod that only the kernel knows is unknown to a kubelet
			known = append(known, p)
		}
	}
	out.Pods = known
	t.last = &out
	return t.last
}

// closeIdle closes the reader after a long time without requests.
func (t *Taker) closeIdle() {
	select {
	case t.slot <- struct{}{}:
		t.release()
		<-t.slot
	default: // a request is in progress
	}
}

func (t *Taker) release() {
	if t.reader != nil {
		t.reader.Close()
		t.closer()
	}
	t.reader, t.closer, t.last, t.scratch = nil, nil, nil, stats.Summary{}
}

// Close releases everything. It returns an error if a measurement blocks in the kernel, which is
// then abandoned.
func (t *Taker) Close() error {
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case t.slot <- struct{}{}:
	case <-timer.C:
		return errors.New("nodestats: reading pod statistics still blocks in the kernel")
	}
	t.closed = true
	if t.idleTimer != nil {
		t.idleTimer.Stop()
	}
	t.release()
	<-t.slot
	t.looks.Wait()
	return nil
}
