package agent

import (
	"os"
	"slices"
	"time"

	"jettison/eviction"
	"jettison/internal/frames"
)

// recordClose is how long the last frames may take to be written when the agent ends.
const recordClose = time.Second

// startRecord begins to record frames, if that is wanted. The returned function ends it.
func (a *agent) startRecord() (stop func(), err error) {
	if a.o.Config.Record == "" {
		return func() {}, nil
	}
	a.recorder, err = frames.NewRecorder(a.o.Config.Record, func(n frames.Notice) {
		if n.Err != nil {
			a.log.Warn("frames are lost", "error", n.Err)
			return
		}
		a.log.Info("frames are written again", "lost", n.Lost)
	})
	if err != nil {
		return nil, err
	}
	a.nodeName, _ = os.Hostname() // for who reads the frames
	return func() {
		if err := a.recorder.Close(recordClose); err != nil {
			a.log.Warn("stopping", "error", err)
		}
	}, nil
}

// record has the last look at pods recorded. extra: it was not the regular one.
func (a *agent) record(now time.Time, look int, extra bool) {
	if a.recorder == nil {
		return
	}
	// A look may be later than what led to it, but the frames of a file are in order.
	if now.Before(a.recorded) {
		now = a.recorded
	}
	a.recorded = now
	a.recorder.Record(frames.FromLook(frames.Look{
		Time: now, Summary: &a.summary, Pods: a.store.Snapshot().Objects, KillErrors: a.killErrors, Node: a.nodeName,
		MemoryOnly: look == memoryLook, ObserveDisks: a.observeDisks(),
	}), extra)
	clear(a.killErrors)
}

// recordMet records the moment in which a threshold begins to be met, whatever follows from it.
func (a *agent) recordMet(now time.Time, met []eviction.Met) {
	if a.recorder == nil {
		return
	}
	for _, m := range met {
		if !slices.Contains(a.metBefore, m.Threshold.String()) {
			_ = a.lookAtPods(now, memoryLook) // what is wrong was logged, or will be
			a.record(now, memoryLook, true)
			break
		}
	}
	a.metBefore = a.metBefore[:0]
	for _, m := range met {
		a.metBefore = append(a.metBefore, m.Threshold.String())
	}
}
