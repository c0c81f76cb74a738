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

// Every is the interval of passes, the kubelet's containerLogMonitorInterval.
const Every = 10 * time.Second

// PassResult is the result of one pass over the logs of running containers.
type PassResult struct {
	Result
	Err error
}

// Rotation is the loop's part. It runs passes outside the loop, one at a time. Call Wait at the
// end.
type Rotation struct {
	rotator Rotator // used by the running pass
	log     *logthrottle.Logger

	running   bool
	startedAt time.Time       // of the last pass
	passed    chan PassResult // one slot

	passes sync.WaitGroup
}

// NewRotation returns a Rotation without a pass so far.
func NewRotation(r Rotator, log *logthrottle.Logger) *Rotation {
	return &Rotation{rotator: r, log: log, passed: make(chan PassResult, 1)}
}

// Results returns the channel of results; nil for a nil Rotation.
func (r *Rotation) Results() <-chan PassResult {
	if r == nil {
		return nil
	}
	return r.passed
}

// Tick starts a pass if one is due. The pass ends with ctx.
func (r *Rotation) Tick(ctx context.Context, now time.Time, pods read.Index) {
	if r == nil || r.running || now.Sub(r.startedAt) < Every {
		return
	}
	var containers []cri.Container
	for _, p := range pods {
		containers = append(containers, p.Containers...)
	}
	r.running, r.startedAt = true, now
	passed := r.passed
	r.passes.Go(func() {
		result, err := r.rotator.Pass(ctx, time.Now(), containers)
		passed <- PassResult{result, err}
	})
}

// OnResult logs the result of a pass that changed files or failed.
func (r *Rotation) OnResult(p PassResult) {
	r.running = false
	if p.Result != (Result{}) {
		//log: A pass over the container logs rotated, compressed or removed files. The key freed
		//  has the bytes freed.
		r.log.Info("rotated logs", api.EventGarbage.Attr(), "rotated", p.Rotated, "compressed",
			p.Compressed, "removed", p.Removed,
			"freed", p.Freed)
	}
	if p.Err != nil {
		//log: One or more container logs could not be rotated. The agent tries again in the next
		//  pass.
		//do: See error for each log. A runtime that does not reopen logs, or a full disk, is a
		//  likely cause.
		r.log.Repeat("rotate: "+p.Err.Error(),
			func() { r.log.Warn("log rotation failed", api.EventGarbage.Attr(), "error", p.Err) })
	}
}

// Wait waits for the running pass.
func (r *Rotation) Wait() {
	if r != nil {
		r.passes.Wait()
	}
}
