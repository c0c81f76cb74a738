package frames

import (
	"log/slog"
	"os"
	"slices"
	"time"

	"jettison/eviction"
)

// Recording records the looks of a loop. A nil Recording records nothing. It is for one goroutine.
type Recording struct {
	recorder  *Recorder
	node      string            // the node's name
	last      time.Time         // of the last frame
	notKilled map[string]string // reasons why pods did not die since then, by UID
	met       []string          // thresholds that were met in the last call of NewlyMet
}

// StartRecording starts to record to a file, and logs lost frames. Without a path it returns nil.
// The caller must call Close.
func StartRecording(path string, log *slog.Logger) (*Recording, error) {
	if path == "" {
		return nil, nil
	}
	recorder, err := NewRecorder(path, func(n Notice) {
		if n.Err != nil {
			//log: Frames of the recording (record, --record) are dropped from now on, for the reason in error:
			//  the disk is too slow, the budget per minute is used up, or writing failed.
			//do: Correct the cause, for example a full disk. Without the recording, replays lack these looks.
			log.Warn("frames dropped", "error", n.Err)
			return
		}
		//log: Frames are recorded again; lost is the number of dropped frames.
		log.Info("recording resumed", "lost", n.Lost)
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

// Record records a look, with the node's name and the pods that did not die since the last frame.
// extra: not a regular look.
func (r *Recording) Record(l Input, extra bool) {
	if r == nil {
		return
	}
	// Times in a file must not decrease, but the time of a look may be before the last frame's.
	if l.Time.Before(r.last) {
		l.Time = r.last
	}
	r.last = l.Time
	l.KillErrors, l.Node = r.notKilled, r.node
	r.recorder.Record(FromLook(l), extra)
	clear(r.notKilled)
}

// AddKillError adds a pod that did not die, with the reason, to the next frame.
func (r *Recording) AddKillError(uid, why string) {
	if r != nil {
		r.notKilled[uid] = why
	}
}

// NewlyMet reports whether a threshold is met that was not met in the last call: this moment is
// recorded even if nothing follows from it. It returns false for a nil Recording.
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

// Dropped returns the number of frames lost since the start. It is safe for concurrent use.
func (r *Recording) Dropped() uint64 {
	if r == nil {
		return 0
	}
	return r.recorder.dropped.Load()
}

// Close writes the queued frames and closes the file, as Recorder.Close does.
func (r *Recording) Close(atMost time.Duration) error {
	if r == nil {
		return nil
	}
	return r.recorder.Close(atMost)
}
