package disk

import (
	"slices"
	"time"

	"jettison/stats"
)

// keep replaces lower bounds and missing parts with earlier, larger values, because a pod that is
// hard to measure must not appear smaller. A kept value has the time of its measurement, is
// partial, and is marked as kept.
func (s *storage) keep(before *storage) {
	if before == nil {
		return
	}
	s.allLogs = s.larger(s.allLogs, before.allLogs)
	s.messages = s.larger(s.messages, before.messages)
	s.runtimeFiles = s.larger(s.runtimeFiles, before.runtimeFiles)
	for id, now := range s.exited {
		old, exited := before.exited[id]
		if !exited { // the container was running, and has not written since its last walk
			old = before.layers[id]
		}
		s.exited[id] = s.larger(now, old)
	}
	for name, old := range before.logs {
		if now := s.larger(s.logs[name], old); !now.Time.IsZero() {
			s.logs[name] = now
		}
	}
	for id, old := range before.layers {
		if now := s.larger(s.layers[id], old); !now.Time.IsZero() {
			s.layers[id] = now
		}
	}
	for _, old := range before.volumes {
		at := slices.IndexFunc(s.volumes, func(v stats.VolumeStats) bool { return v.Name == old.Name })
		switch {
		case at >= 0 && s.volumes[at].Memory == old.Memory:
			s.volumes[at].FsUsage = s.larger(s.volumes[at].FsUsage, old.FsUsage)
		case at < 0:
			if old.FsUsage = s.larger(stats.FsUsage{}, old.FsUsage); !old.Time.IsZero() {
				s.volumes = append(s.volumes, old)
			}
		}
	}
	slices.SortFunc(s.volumes, byName)
}

// larger chooses the value of a part. A part that is absent now keeps its earlier value only if
// some part could not be measured. A value is kept for at most storageLimit after it was counted,
// because a pod with incomplete measurements may have removed the files. After that only the
// previous measurement counts.
func (s *storage) larger(now, before stats.FsUsage) stats.FsUsage {
	counted := before.Time
	switch {
	case before.KeptTime.IsZero():
	case s.time.Sub(before.KeptTime) > storageLimit:
		before.UsedBytes, before.InodesUsed = before.Counted(), before.InodesUsed-min(before.KeptInodes,
			before.InodesUsed)
	default:
		counted = before.KeptTime
	}
	switch {
	case before.Time.IsZero(), now.Time.IsZero() &&
		(!s.missing || s.time.Sub(before.Time) > storageLimit), !now.Time.IsZero() && !now.Partial:
		return now
	case now.Time.IsZero():
		now, now.KeptTime = before, time.Time{}
		now.KeptBytes, now.KeptInodes = before.UsedBytes, before.InodesUsed
	default:
		now.KeptBytes = before.UsedBytes - min(now.UsedBytes, before.UsedBytes)
		now.KeptInodes = before.InodesUsed - min(now.InodesUsed, before.InodesUsed)
		now.UsedBytes, now.InodesUsed = max(now.UsedBytes, before.UsedBytes),
			max(now.InodesUsed, before.InodesUsed)
	}
	if now.Partial = true; now.KeptBytes > 0 || now.KeptInodes > 0 {
		now.KeptTime = counted
	}
	return now
}
