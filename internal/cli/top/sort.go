package top

import (
	"cmp"
	"slices"
)

// sortKey is a way to sort pods: largest first, unknown last.
type sortKey struct {
	name, column string
	of           func(*row) float64
}

// sorts lists the sort keys in the order in which a key press selects them.
var sorts = []sortKey{
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

// unknown is less than every known value.
const unknown = -1e300

func amount(v *uint64) float64 {
	if v == nil {
		return unknown
	}
	return float64(*v)
}

// sortNames returns the names of the sort keys.
func sortNames() (names []string) {
	for _, s := range sorts {
		names = append(names, s.name)
	}
	return names
}

// sortIndex returns the index of a sort key; 0 for an unknown name.
func sortIndex(name string) int {
	return max(0, slices.IndexFunc(sorts, func(s sortKey) bool { return s.name == name }))
}

// order sorts rows by a key, equal ones by name.
func order(rows []row, key sortKey) {
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(key.of(&b), key.of(&a)), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.UID, b.UID))
	})
}
