// Package nodestats tells what the node and its pods use, in the two forms that a kubelet has: its
// Summary API and its resource metrics (pkg/kubelet/server/stats/handler.go,
// pkg/kubelet/metrics/collectors/resource_metrics.go, v1.36). It looks by itself, beside the loop
// and only when it is asked.
//
//	nodestats.go  Taker: looks, at most once a second
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
	// how old an answer may be: however many ask, there is one look in that
	fresh     = time.Second
	apart     = 250 * time.Millisecond // between the first two looks, which make the first rates
	idle      = 5 * time.Minute        // after which what was opened for it is closed again
	measured  = 2 * time.Minute        // how old what pods take of disks may be, as of a kubelet
	patience  = 10 * time.Second       // for one look
	closeWait = time.Second
)

// ErrEarly is why there is no answer before the runtime has told its pods.
var ErrEarly = errors.New("the runtime has not told its pods yet")

// Options of New.
type Options struct {
	// Open makes a reader of the Taker's own. closer gives back what it was made with.
	Open func() (reader *read.Reader, closer func(), err error)
	Node string // its name
}

// Taker takes Summaries. It is safe for concurrent use. Close it.
type Taker struct {
	o    Options
	pods atomic.Pointer[read.Index] // nil: not told yet
	// background measures what may block; nil: neither file systems nor what pods take of them are
	// told.
	background atomic.Pointer[read.Background]
	turn       chan struct{} // one slot: who has it looks

	// Of who has the turn.
	reader  *read.Reader // nil: not open
	closer  func()
	scratch stats.Summary
	last    *v1alpha1.Summary // never changed
	taken   time.Time
	unused  *time.Timer // closes the reader; nil: there is none to close
	closed  bool
	beside  sync.WaitGroup // looks that nobody waits for any more
}

// New makes a Taker that has opened nothing yet.
func New(o Options) *Taker {
	return &Taker{o: o, turn: make(chan struct{}, 1)}
}

// SetPods tells which pods the runtime knows. The index is not changed any more.
func (t *Taker) SetPods(pods read.Index) { t.pods.Store(&pods) }

// SetBackground tells what measures file systems and what pods take of them.
func (t *Taker) SetBackground(b *read.Background) { t.background.Store(b) }

// Take is a Summary of at most a second ago, which must not be changed. What cannot be read is
// absent. full: what pods take of disks is wanted, and measured if that is long ago; it comes with
// a later one then.
func (t *Taker) Take(ctx context.Context, full bool) (*v1alpha1.Summary, error) {
	pods := t.pods.Load()
	if pods == nil {
		return nil, ErrEarly
	}
	if b := t.background.Load(); full && b != nil {
		b.Demand(time.Now().Add(-measured))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type answer struct {
		summary *v1alpha1.Summary
		err     error
	}
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.Join(errors.New("the kernel holds up a look at pods"), ctx.Err())
	}
	got := make(chan answer, 1)
	t.beside.Go(func() {
		defer func() { <-t.turn }()
		summary, err := t.look(*pods)
		got <- answer{summary, err}
	})
	select {
	case a := <-got:
		return a.summary, a.err
	case <-ctx.Done():
		return nil, errors.Join(errors.New("the kernel holds up a look at pods"), ctx.Err())
	}
}

// look looks, unless the last one will do.
func (t *Taker) look(pods read.Index) (*v1alpha1.Summary, error) {
	now := time.Now()
	switch {
	case t.closed:
		return nil, errors.New("the agent ends")
	case t.last != nil && now.Sub(t.taken) < fresh:
		return t.last, nil
	}
	if t.reader == nil {
		var err error
		if t.reader, t.closer, err = t.o.Open(); err != nil {
			t.reader = nil
			return nil, err
		}
		_ = t.reader.Collect(now, pods, &t.scratch)
		time.Sleep(apart)
		now = time.Now()
	}
	_ = t.reader.Collect(now, pods, &t.scratch) // what could not be read is absent
	if b := t.background.Load(); b != nil {
		b.Fill(now, &t.scratch)
	}
	out := summaryv1.From(&t.scratch, t.o.Node)
	known := out.Pods[:0]
	for _, p := range out.Pods {
		if p.PodRef.Name != "" { // else only the kernel knows of it, and no kubelet would
			known = append(known, p)
		}
	}
	out.Pods = known
	t.last, t.taken = &out, now
	if t.unused == nil {
		t.unused = time.AfterFunc(idle, t.rest)
	} else {
		t.unused.Reset(idle)
	}
	return t.last, nil
}

// rest gives back what was opened, when nobody has asked for long.
func (t *Taker) rest() {
	select {
	case t.turn <- struct{}{}:
		t.release()
		<-t.turn
	default: // somebody asks
	}
}

func (t *Taker) release() {
	if t.reader != nil {
		t.reader.Close()
		t.closer()
	}
	t.reader, t.closer, t.last, t.scratch = nil, nil, nil, stats.Summary{}
}

// Close gives everything back. A look that the kernel holds up is left behind, and that is the
// error.
func (t *Taker) Close() error {
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case t.turn <- struct{}{}:
	case <-timer.C:
		return errors.New("nodestats: a look at pods does not end")
	}
	t.closed = true
	if t.unused != nil {
		t.unused.Stop()
	}
	t.release()
	<-t.turn
	t.beside.Wait()
	return nil
}
