package reclaim

import (
	"time"
)

// Records are what is remembered of images, by ID.
type Records map[string]ImageRecord

// ImageRecord is what is remembered of an image.
type ImageRecord struct {
	FirstDetected time.Time // zero in a record that was read: not known, it counts as first seen now
	LastUsed      time.Time // seen in use; zero: never
}

// Detect brings records up to date with what is seen now (kubelet detectImages): new images are
// first detected now, those in use were last used now, those that are not listed are forgotten. A
// time after now is from a clock that was set back, and becomes now. The records themselves are not
// changed.
func (r Records) Detect(now time.Time, images []Image, used Used) Records {
	out := make(Records, len(images))
	for i := range images {
		id := images[i].ID
		record, ok := r[id]
		if !ok || record.FirstDetected.IsZero() || record.FirstDetected.After(now) {
			record.FirstDetected = now
		}
		if record.LastUsed.After(now) || used.Image(&images[i]) {
			record.LastUsed = now
		}
		out[id] = record
	}
	return out
}
