package reclaim

import (
	"time"
)

// Records holds the history of images, by ID.
type Records map[string]ImageRecord

// ImageRecord is the history of an image.
type ImageRecord struct {
	FirstDetected time.Time // zero in a stored record: unknown, treated as now
	LastUsed      time.Time // last time in use; zero: never
}

// Detect returns records updated with the listed images (kubelet detectImages). New images are
// first detected now, images in use were last used now, and images that are not listed are dropped.
// A time after now comes from a clock that was set back and becomes now. Detect does not change r.
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
