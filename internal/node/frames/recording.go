package frames

import (
	"log/slog"
	"os"
	"slices"
	"time"

	"jettison/eviction"
)

// Recording is what a loop records its looks with. A nil one records nothing. It is for one
// goroutine.
type Recording struct {
	recorder  *Recorder
	node      string            // the node's name
	last      time.Time         // the last frame's
	notKilled map[string]string // why pods did not die since then, by UID
	met       []string          // thresholds that were met when it was last asked
}

// StartRecording begins to record to a file. Without a path nothing is recorded. Frames that are
// lost are logged. Close it.
func StartRecording(path string, log *slog.Logger) (*Recording, error) {
	if path == "" {
		return nil, nil
	}
	recorder, err := NewRecorder(path, func(n Notice) {
		if n.Err != nil {
			log.Warn("frames are lost", "error", n.Err)
			return
		}
		log.Info("frames are written again", "lost", n.Lost)
	})
	if err != nil {
		return nil, err
	}
	r := &Recording{recorder: recorder, notKilled: map[string]string{}}
	r.node, _ = os.Hostname() // for people who read the frames
	return r, nil
}

// On reports whether frames are recorded.
func (r *Recording) On() bool { return r != nil }

// Record has a look recorded, with the node's name and the pods that did not die since the last
// frame. extra: it was not a regular look.
func (r *Recording) Record(l Look, extra bool) {
	if r == nil {
		return
	}
	// A look may be later than what led to it, but the frames of a file are in order.
	if l.Time.Before(r.last) {
		l.Time = r.last
	}
	r.last = l.Time
	l.KillErrors, l.Node = r.notKilled, r.node
	r.recorder.Record(FromLook(l), extra)
	clear(r.notKilled)
}

// NotKilled has the next frame say that a pod did not die.
func (r *Recording) NotKilled(uid, why string) {
	if r != nil {
		r.notKilled[uid] = why
	}
}

// NewlyMet reports whether a threshold is met that was not when it was last asked: that moment is
// worth a frame, whatever follows from it. Without a recording none is.
func (r *Recording) NewlyMet(met []eviction.Met) (newly bool) {
	if r == nil {
		return false
	}
	for _, m := range met {
		newly = newly || !slices.Contains(r.met, m.Threshold.String())
	}
	r.met = r.met[:0]
	for _, m := range met {
		r.met = append(r.met, m.Threshold.String())
	}
	return newly
}

// Dropped is how many frames were lost since the start. It is for any goroutine.
func (r *Recording) Dropped() uint64 {
	if r == nil {
		return 0
	}
	return r.recorder.dropped.Load()
}

// Close writes what waits and closes the file, as Recorder.Close does.
func (r *Recording) Close(atMost time.Duration) error {
	if r == nil {
		return nil
	}
	return r.recorder.Close(atMost)
}
