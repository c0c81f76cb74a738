package garbage

import "time"

// Schedule computes when passes are due: each kind has its own period, counted from the start. It
// has no side effects.
type Schedule struct {
	Started time.Time
	// Containers and Images are the periods; 0: never.
	Containers, Images time.Duration
	// Jitter in [0, 1) shifts the passes of this node against those of nodes started at the same time.
	Jitter float64
	// Detect makes images age from the start on, as with the kubelet
	// (pkg/kubelet/images/image_gc_manager.go Start). Otherwise a disk that is short before the first
	// pass would have no image that is old enough.
	Detect bool
}

// Next returns the kind and time of the first pass due after a time. what 0: no pass is ever due.
func (s Schedule) Next(after time.Time) (what Kind, at time.Time) {
	// The first pass for images comes half a container period after one for containers, so that passes
	// with periods that are multiples of each other never coincide.
	shift := time.Duration(s.Jitter * float64(s.Containers))
	if s.Containers > 0 {
		what, at = Containers, first(s.Started.Add(shift), s.Containers, after)
	}
	if s.Images > 0 {
		from := s.Started.Add(shift + s.Containers/2 +
			time.Duration(s.Jitter*float64(s.Images)/2).Truncate(max(s.Containers, 1)))
		if images := first(from, s.Images, after); what == 0 || images.Before(at) {
			what, at = Images, images
		}
	}
	return what, at
}

// first returns the first of from, from+period, ... that is after a time.
func first(from time.Time, period time.Duration, after time.Time) time.Time {
	if from.After(after) {
		return from
	}
	return from.Add((after.Sub(from)/period + 1) * period)
}
