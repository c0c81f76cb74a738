package openfiles

import (
	"maps"
	"time"

	"jettison/stats"
	"jettison/stats/read/walk"
)

// Kept is what the processes of one pod keep of files that no directory has any more.
type Kept struct {
	// by the device of the disk that has the blocks; nil: it was not looked for
	by    map[uint64]walk.Usage
	cut   bool          // its turn ended before
	lacks bool          // the host's mounts are not all known
	turn  time.Duration // that it might have taken
	// process ids, and what each was found to keep in bytes: a few, for the order of the next look
	holders map[int]uint64
	Time    time.Time             // it began
	nth     int                   // look at that pod
	own     map[uint64]walk.Usage // what of by it has counted itself, where a part is kept; nil: all
	kept    time.Time             // when what is kept of by was counted; zero: nothing is
}

// atLeast marks the figures as lower bounds.
func (u *Kept) atLeast() {
	for device, now := range u.by {
		now.Partial = true
		u.by[device] = now
	}
}

// larger keeps the figures of the look before where they are larger: to be hard to count must not
// make a pod smaller. What was kept already for KeepFor after it was counted is not kept any more:
// then the look before counts.
func (u *Kept) larger(before *Kept) {
	u.own = maps.Clone(u.by)
	kept, counted := before.by, before.Time
	switch {
	case before.kept.IsZero():
	case u.Time.Sub(before.kept) > KeepFor:
		kept = before.own
	default:
		counted = before.kept
	}
	for device, old := range kept {
		now := u.by[device]
		if old.Bytes > now.Bytes || old.Inodes > now.Inodes {
			u.kept = counted
		}
		u.by[device] = walk.Usage{Bytes: max(now.Bytes, old.Bytes), Inodes: max(now.Inodes, old.Inodes)}
	}
	u.atLeast()
}

// On is what lies on a device.
func (u *Kept) On(device stats.Opt[stats.FsStats]) (out stats.Opt[stats.FsUsage]) {
	if u.by == nil || !device.OK {
		return out
	}
	on := u.by[device.V.Device]
	return stats.Some(stats.FsUsage{Time: u.Time, UsedBytes: on.Bytes, InodesUsed: on.Inodes,
		Partial: on.Partial || u.cut || u.lacks})
}
