package garbage

import "time"

// Schedule is when passes are due: each kind in its own rhythm, counted from the start. It is pure.
type Schedule struct {
	Started time.Time
	// Containers and Images are the periods; 0: never.
	Containers, Images time.Duration
	// Jitter in [0, 1) shifts the passes of this node against those of others that started at the same
	// time.
	Jitter float64
	// Detect: images have an age from the start on, as with the kubelet
	// (pkg/kubelet/images/image_gc_manager.go Start); else a disk that is short before the first pass
	// would find none old enough.
	Detect bool
}

// Next is the first pass that is due after a time, of one kind at a time. what 0: none ever is.
func (s Schedule) Next(after time.Time) (what What, at time.Time) {
	// The first pass for images comes half a period of containers after one for these, so that with
	// periods that are multiples of one another they never meet.
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

// first is the first of from, from+period, ... after a time.
func first(from time.Time, period time.Duration, after time.Time) time.Time {
	if from.After(after) {
		return from
	}
	return from.Add((after.Sub(from)/period + 1) * period)
}
