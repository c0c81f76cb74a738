package eviction

import (
	"maps"
	"slices"

	"jettison/stats"
)

// SavedAwaited is what is kept of one signal, for an eviction.
type SavedAwaited struct {
	Level *uint64 `json:"level,omitempty"` // observed when it began; nil: it was not
	Best  uint64  `json:"best,omitempty"`  // the most since the kill
	// of a disk: what the victim was measured to hold there; nil: it was not
	Due     *uint64 `json:"due,omitempty"`
	AtLeast bool    `json:"atLeast,omitempty"` // Due is a lower bound
}

// save is what is kept of it: by signal, and by what is counted.
func (a *awaited) save() (s map[string]SavedAwaited, due, holds map[string]uint64) {
	for signal, info := range signals {
		k := a.marks[info.order]
		if !k.ok && !k.disk.OK {
			continue
		}
		if s == nil {
			s = map[string]SavedAwaited{}
		}
		var saved SavedAwaited
		if k.ok {
			saved.Level, saved.Best = &k.level, k.best
		}
		if k.disk.OK {
			saved.Due, saved.AtLeast = &k.disk.V, k.disk.least
		}
		s[string(signal)] = saved
	}
	return s, saveAmounts(&a.due), saveAmounts(&a.holds)
}

func saveAmounts(of *[amounts]stats.Opt[uint64]) (out map[string]uint64) {
	for k, o := range of {
		if o.OK && out == nil {
			out = map[string]uint64{}
		}
		if o.OK {
			out[kindNames[k]] = o.V
		}
	}
	return out
}

// resume takes back what was saved. What is missing, as in the file of an agent before this one, is
// not known.
func (a *awaited) resume(s *SavedLife, drop func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(s.Awaited)) {
		info, known := signals[stats.Signal(name)]
		saved := s.Awaited[name]
		switch {
		case !known:
			drop("what is awaited of %.64q, which is no signal", name)
		case saved.Level != nil && *saved.Level > implausible || saved.Best > implausible ||
			saved.Due != nil && *saved.Due > implausible:
			drop("what is awaited of %s: a number that cannot be true", name)
		default:
			k := &a.marks[info.order]
			if saved.Level != nil {
				*k = mark{level: *saved.Level, best: max(*saved.Level, saved.Best), ok: true}
			}
			if saved.Due != nil && info.kind.disk() {
				k.disk = owed{Opt: stats.Some(*saved.Due), least: saved.AtLeast}
			}
		}
	}
	resumeAmounts(&a.due, s.Due, drop)
	resumeAmounts(&a.holds, s.Holds, drop)
}

func resumeAmounts(to *[amounts]stats.Opt[uint64], saved map[string]uint64,
	drop func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		k := slices.Index(kindNames[:amounts], name)
		if k < 0 || saved[name] > implausible {
			drop("what is awaited of %.64q: %d", name, saved[name])
			continue
		}
		to[k] = stats.Some(saved[name])
	}
}
