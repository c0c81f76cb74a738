package stats

import "math"

// SaturatingAdd returns a + b, or the greatest number of the type if the sum does not fit. Neither
// argument may be negative.
func SaturatingAdd[T int64 | uint64](a, b T) T {
	if sum := a + b; sum >= a {
		return sum
	}
	greatest := ^T(0)
	if greatest < 0 {
		greatest = math.MaxInt64
	}
	return greatest
}
