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
	scratch   stats.Summary
	last      *v1alpha1.Summary // immutable
	taken     time.Time
	idleTimer *time.Timer // closes the reader; nil: not open
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
	pods := t.pods.Load()
	if pods == nil {
		return nil, ErrEarly
	}
	if b := t.background.Load(); full && b != nil {
		b.Demand(time.Now().Add(-maxDiskAge))
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	type answer struct {
		summary *v1alpha1.Summary
		err     error
	}
	select {
	case t.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.Join(errors.New("reading pod statistics blocks in the kernel"), ctx.Err())
	}
	got := make(chan answer, 1)
	t.looks.Go(func() {
		defer func() { <-t.slot }()
		summary, err := t.look(*pods)
		got <- answer{summary, err}
	})
	select {
	case a := <-got:
		return a.summary, a.err
	case <-ctx.Done():
		return nil, errors.Join(errors.New("reading pod statistics blocks in the kernel"), ctx.Err())
	}
}

// look measures, unless the last Summary is fresh.
func (t *Taker) look(pods read.Index) (*v1alpha1.Summary, error) {
	now := time.Now()
	switch {
	case t.closed:
		return nil, errors.New("the agent is shutting down")
	case t.last != nil && now.Sub(t.taken) < maxAge:
		return t.last, nil
	}
	if t.reader == nil {
		var err error
		if t.reader, t.closer, err = t.o.Open(); err != nil {
			t.reader = nil
			return nil, err
		}
		_ = t.reader.Collect(now, pods, &t.scratch)
		time.Sleep(rateInterval)
		now = time.Now()
	}
	_ = t.reader.Collect(now, pods, &t.scratch) // unreadable values are absent
	if b := t.background.Load(); b != nil {
		b.Fill(now, &t.scratch)
	}
	out := summaryv1.From(&t.scratch, t.o.Node)
	known := out.Pods[:0]
	for _, p := range out.Pods {
		if p.PodRef.Name != "" { // a pod that only the kernel knows is unknown to a kubelet
			known = append(known, p)
		}
	}
	out.Pods = known
	t.last, t.taken = &out, now
	if t.idleTimer == nil {
		t.idleTimer = time.AfterFunc(idleTimeout, t.closeIdle)
	} else {
		t.idleTimer.Reset(idleTimeout)
	}
	return t.last, nil
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
