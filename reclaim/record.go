package reclaim

import (
	"strings"
	"time"
)

// Records are what is remembered of images, by ID.
type Records map[string]ImageRecord

// ImageRecord is what is remembered of an image.
type ImageRecord struct {
	FirstDetected time.Time // zero in a record that was read: not known, it counts as first seen now
	LastUsed      time.Time // seen in use; zero: never
}

// Detect brings records up to date with what is seen now (kubelet detectImages): new images are first detected now, those in use
// were last used now, those that are not listed are forgotten. A time after now is from a clock that was set back, and becomes
// now. The records themselves are not changed.
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

// Used is what images are in use by.
type Used map[string]struct{}

// UsedIn are the images of a look's containers in any state, and its ImagesInUse.
func UsedIn(l *Look) Used {
	u := make(Used, len(l.Images))
	for i := range l.Containers {
		for _, ref := range l.Containers[i].Images {
			u.add(ref)
		}
	}
	for _, ref := range l.ImagesInUse {
		u.add(ref)
	}
	return u
}

func (u Used) add(ref string) {
	if ref = plain(ref); ref != "" {
		u[ref] = struct{}{}
	}
}

// Image says whether an image is in use under its ID or any of its names. The kubelet knows the ID only, so that an image is lost to it
// where a runtime gives another reference.
func (u Used) Image(i *Image) bool {
	if _, ok := u[plain(i.ID)]; ok {
		return true
	}
	for _, name := range i.Names {
		if _, ok := u[plain(name)]; ok {
			return true
		}
	}
	return false
}

// plain is a reference by which two can be compared: of "name@sha256:digest" and "sha256:digest" the digest (CRI-O's IDs are
// without the "sha256:"), else all of it.
func plain(ref string) string {
	if i := strings.LastIndexByte(ref, '@'); i >= 0 {
		ref = ref[i+1:]
	}
	return strings.TrimPrefix(ref, "sha256:")
}
