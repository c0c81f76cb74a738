package top

import (
	"cmp"
	"slices"
)

// by is one way to sort pods: the largest first, what is not known last.
type by struct {
	name, column string
	of           func(*row) float64
}

// sorts are the ways, in the order in which a key goes through them.
var sorts = []by{
	{"free", "FREED BY KILL", func(r *row) float64 { return amount(r.Frees) }},
	{"memory", "WORKING SET", func(r *row) float64 { return amount(r.WorkingSet) }},
	{"growth", "GROWTH", func(r *row) float64 {
		if r.GrowsPerSecond == nil {
			return unknown
		}
		return *r.GrowsPerSecond
	}},
	{"psi", "STALLED", func(r *row) float64 {
		if r.MemoryStalled == nil {
			return unknown
		}
		return *r.MemoryStalled
	}},
	{"cpu", "CPU", func(r *row) float64 { return amount(r.NanoCores) }},
}

// unknown is less than all that is known.
const unknown = -1e300

func amount(v *uint64) float64 {
	if v == nil {
		return unknown
	}
	return float64(*v)
}

// sortNames are the names of the ways to sort.
func sortNames() (names []string) {
	for _, s := range sorts {
		names = append(names, s.name)
	}
	return names
}

// sortBy is the index of a way; the first one, where there is none of that name.
func sortBy(name string) int {
	return max(0, slices.IndexFunc(sorts, func(s by) bool { return s.name == name }))
}

// order sorts rows; among equals by name.
func order(rows []row, way by) {
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(way.of(&b), way.of(&a)), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.UID, b.UID))
	})
}
