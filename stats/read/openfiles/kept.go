package openfiles

import (
	"maps"
	"time"

	"jettison/stats"
	"jettison/stats/read/walk"
)

// Kept is the usage of files without a name that the processes of one pod keep.
type Kept struct {
	// usage by the device of the disk that holds the blocks; nil: no search was made
	byDevice         map[uint64]walk.Usage
	cut              bool          // the turn ended before the look did
	mountsIncomplete bool          // some of the host's mounts were not read
	turn             time.Duration // limit of the look
	// bytes that each process keeps, by process ID, for the order of the next look; not all
	holders  map[int]uint64
	Time     time.Time             // start of the look
	number   int                   // number of the look at this pod
	measured map[uint64]walk.Usage // counted by this look alone; nil: all of byDevice
	keptTime time.Time             // when the kept part of byDevice was counted; zero: nothing is kept
}

// markPartial marks the values as lower bounds.
func (u *Kept) markPartial() {
	for device, now := range u.byDevice {
		now.Partial = true
		u.byDevice[device] = now
	}
}

// keepLarger keeps larger values of the previous look, because a pod that is hard to search must
// not appear smaller. A value is kept for at most KeepFor after it was counted; after that, the
// previous look's own count applies.
func (u *Kept) keepLarger(before *Kept) {
	u.measured = maps.Clone(u.byDevice)
	kept, counted := before.byDevice, before.Time
	switch {
	case before.keptTime.IsZero():
	case u.Time.Sub(before.keptTime) > KeepFor:
		kept = before.measured
	default:
		counted = before.keptTime
	}
	for device, old := range kept {
		now := u.byDevice[device]
		if old.Bytes > now.Bytes || old.Inodes > now.Inodes {
			u.keptTime = counted
		}
		u.byDevice[device] = walk.Usage{Bytes: max(now.Bytes, old.Bytes), Inodes: max(now.Inodes, old.Inodes)}
	}
	u.markPartial()
}

// On returns the usage on the device of a file system.
func (u *Kept) On(device stats.Opt[stats.FsStats]) (out stats.Opt[stats.FsUsage]) {
	if u.byDevice == nil || !device.OK {
		return out
	}
	on := u.byDevice[device.V.Device]
	return stats.Some(stats.FsUsage{Time: u.Time, UsedBytes: on.Bytes, InodesUsed: on.Inodes,
		Partial: on.Partial || u.cut || u.mountsIncomplete})
}
