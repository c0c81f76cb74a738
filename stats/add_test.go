package stats

import (
	"math"
	"testing"
)

func TestSaturatingAdd(t *testing.T) {
	const most = math.MaxUint64
	for _, c := range []struct{ a, b, want uint64 }{
		{0, 0, 0}, {1, 2, 3}, {most - 1, 1, most}, {most, 0, most}, {0, most, most}, {most, 1, most}, {1, most, most},
		{most, most, most}, {1 << 63, 1 << 63, most},
	} {
		if got := SaturatingAdd(c.a, c.b); got != c.want {
			t.Errorf("SaturatingAdd(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
	const mostSigned = math.MaxInt64
	for _, c := range []struct{ a, b, want int64 }{
		{0, 0, 0}, {1, 2, 3}, {mostSigned - 1, 1, mostSigned}, {mostSigned, 0, mostSigned}, {mostSigned, 1, mostSigned},
		{1, mostSigned, mostSigned}, {mostSigned, mostSigned, mostSigned},
	} {
		if got := SaturatingAdd(c.a, c.b); got != c.want {
			t.Errorf("SaturatingAdd(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
