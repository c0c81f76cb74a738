package logrotate

import (
	"context"
	"sync"
	"time"

	"jettison/api"
	"jettison/cri"
	"jettison/internal/base/logthrottle"
	"jettison/stats/read"
)

// Every is the kubelet's containerLogMonitorInterval.
const Every = 10 * time.Second

// Passed is what one pass over the logs of live containers did.
type Passed struct {
	Result
	Err error
}

// Rotation is the loop's part: passes beside the loop, now and then, one at a time. Wait for it at
// the end.
type Rotation struct {
	rotator Rotator // of the pass that is under way
	log     *logthrottle.Logger

	running bool
	began   time.Time   // when the last pass did
	passed  chan Passed // one slot

	beside sync.WaitGroup // of the pass
}

// NewRotation makes a Rotation that has not passed yet.
func NewRotation(r Rotator, log *logthrottle.Logger) *Rotation {
	return &Rotation{rotator: r, log: log, passed: make(chan Passed, 1)}
}

// Passed is what passes did; nil, which never has anything, of a nil Rotation.
func (r *Rotation) Passed() <-chan Passed {
	if r == nil {
		return nil
	}
	return r.passed
}

// Tick begins a pass beside the loop where one is due. It ends with ctx.
func (r *Rotation) Tick(ctx context.Context, now time.Time, pods read.Index) {
	if r == nil || r.running || now.Sub(r.began) < Every {
		return
	}
	var containers []cri.Container
	for _, p := range pods {
		containers = append(containers, p.Containers...)
	}
	r.running, r.began = true, now
	passed := r.passed
	r.beside.Go(func() {
		result, err := r.rotator.Pass(ctx, time.Now(), containers)
		passed <- Passed{result, err}
	})
}

// OnPassed logs what a pass did, if anything.
func (r *Rotation) OnPassed(p Passed) {
	r.running = false
	if p.Result != (Result{}) {
		r.log.Info("rotated logs", api.EventGarbage.Attr(), "rotated", p.Rotated, "compressed",
			p.Compressed, "removed", p.Removed,
			"freed", p.Freed)
	}
	if p.Err != nil {
		r.log.Repeat("rotate: "+p.Err.Error(),
			func() { r.log.Warn("some logs could not be rotated", api.EventGarbage.Attr(), "error", p.Err) })
	}
}

// Wait waits for the pass that is under way.
func (r *Rotation) Wait() {
	if r != nil {
		r.beside.Wait()
	}
}
