package eviction

import (
	"maps"
	"slices"

	"jettison/stats"
)

// SavedAwaited is the saved expectation of an eviction for one signal.
type SavedAwaited struct {
	Level *uint64 `json:"level,omitempty"` // observed when the eviction began; nil: not observed
	Best  uint64  `json:"best,omitempty"`  // highest value since the kill
	// of a disk: the victim's measured usage; nil: not measured
	Due     *uint64 `json:"due,omitempty"`
	AtLeast bool    `json:"atLeast,omitempty"` // Due is a lower bound
}

// save returns the saved form, by signal and by kind.
func (a *awaited) save() (s map[string]SavedAwaited, due, holds map[string]uint64) {
	for signal, info := range signals {
		k := a.baselines[info.order]
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
			saved.Due, saved.AtLeast = &k.disk.V, k.disk.lowerBound
		}
		s[string(signal)] = saved
	}
	return s, saveAmounts(&a.expected), saveAmounts(&a.heldSince)
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

// resume restores the saved expectation. A missing value, as in an older agent's file, is unknown.
func (a *awaited) resume(s *SavedLife, drop func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(s.Awaited)) {
		info, known := signals[stats.Signal(name)]
		saved := s.Awaited[name]
		switch {
		case !known:
			drop("expected returns of unknown signal %.64q", name)
		case saved.Level != nil && *saved.Level > implausible || saved.Best > implausible ||
			saved.Due != nil && *saved.Due > implausible:
			drop("expected returns of %s: implausible number", name)
		default:
			k := &a.baselines[info.order]
			if saved.Level != nil {
				*k = baseline{level: *saved.Level, best: max(*saved.Level, saved.Best), ok: true}
			}
			if saved.Due != nil && info.kind.disk() {
				k.disk = diskDue{Opt: stats.Some(*saved.Due), lowerBound: saved.AtLeast}
			}
		}
	}
	resumeAmounts(&a.expected, s.Due, drop)
	resumeAmounts(&a.heldSince, s.Holds, drop)
}

func resumeAmounts(to *[amounts]stats.Opt[uint64], saved map[string]uint64,
	drop func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		k := slices.Index(kindNames[:amounts], name)
		if k < 0 || saved[name] > implausible {
			drop("expected returns of %.64q: unknown kind or implausible number %d", name, saved[name])
			continue
		}
		to[k] = stats.Some(saved[name])
	}
}
