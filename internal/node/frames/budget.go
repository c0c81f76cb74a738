package frames

import "time"

// budget limits the bytes written per minute. Extra frames may use half of it, so that regular ones
// always fit.
type budget struct {
	perMinute int64
	sent      []sent // within the last minute, oldest first
}

type sent struct {
	at   time.Time
	size int64
}

// allows reports whether a frame of a size may be written now.
func (b *budget) allows(now time.Time, size int64, extra bool) bool {
	keep := b.sent[:0]
	used := size
	for _, s := range b.sent {
		// entries in the future are dropped, so that a clock that was set back does not block
		// recording
		if age := now.Sub(s.at); age < time.Minute && age >= 0 {
			keep, used = append(keep, s), used+s.size
		}
	}
	b.sent = keep
	limit := b.perMinute
	if extra {
		limit /= 2
	}
	return used <= limit
}

func (b *budget) spend(now time.Time, size int64) { b.sent = append(b.sent, sent{now, size}) }
