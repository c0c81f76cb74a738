package agent

import (
	"context"
	"time"

	"jettison/cri"
	"jettison/internal/rotate"
)

// rotateEvery is the kubelet's containerLogMonitorInterval.
const rotateEvery = 10 * time.Second

// rotation is what one pass over the logs of live containers did.
type rotation struct {
	rotate.Result
	err error
}

// rotateLogs begins a pass beside the loop, now and then, where no kubelet does it.
func (a *agent) rotateLogs(ctx context.Context, now time.Time) {
	if a.rotating || a.host == nil || a.kubelet || a.o.DryRun || a.o.Config.LogMaxBytes < 0 || now.Sub(a.rotatedAt) < rotateEvery {
		return
	}
	var containers []cri.Container
	for _, p := range a.pods {
		containers = append(containers, p.Containers...)
	}
	r := rotate.Rotator{Host: a.host, Runtime: a.Client, PodLogsDir: a.o.Config.PodLogsDir, MaxSize: a.o.Config.LogMaxBytes, MaxFiles: int(a.o.Config.ContainerLogMaxFiles)}
	a.rotating, a.rotatedAt = true, now
	a.evictions.Go(func() {
		result, err := r.Pass(ctx, time.Now(), containers)
		a.rotated <- rotation{result, err}
	})
}

// hasRotated logs what a pass did, if anything.
func (a *agent) hasRotated(r rotation) {
	a.rotating = false
	if r.Result != (rotate.Result{}) {
		a.log.Info("rotated logs", "rotated", r.Rotated, "compressed", r.Compressed, "removed", r.Removed, "freed", r.Freed)
	}
	if r.err != nil {
		a.repeat("rotate: "+r.err.Error(), func() { a.log.Warn("some logs could not be rotated", "error", r.err) })
	}
}
