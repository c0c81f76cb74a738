package show

import (
	"testing"

	"jettison/stats"
)

func TestFigures(t *testing.T) {
	some, none := stats.Some[uint64], stats.Opt[uint64]{}
	for got, want := range map[string]string{
		Amount(stats.SignalMemoryPressureFull, 123_000):                  "12.3%",
		Amount(stats.SignalMemoryAvailable, 64<<20):                      "64Mi",
		Amount(stats.SignalPIDAvailable, 64<<20):                         "67108864",
		Amount(stats.SignalNodeFsInodesFree, 20<<10):                     "20480",
		Size(some(20 << 20)):                                             "20Mi",
		"size " + Size(none):                                             "size -",
		Count(some(7)):                                                   "7",
		"count " + Count(none):                                           "count -",
		Cores(some(1_499_999)):                                           "1m",
		Cores(some(1_500_000)):                                           "2m",
		"cores " + Cores(none):                                           "cores -",
		Between(stats.Some(stats.Range{Min: 20 << 20, Max: 30 << 20})):   "20Mi..30Mi",
		Between(stats.Some(stats.ExactRange(11 << 20))):                  "11Mi",
		Between(stats.Some(stats.Range{Min: 12 << 20, Max: 12<<20 + 1})): "12Mi",
		"between " + Between(stats.Opt[stats.Range]{}):                   "between -",
		"share " + Percent(stats.Observation{}):                          "share -",
	} {
		if got != want {
			t.Errorf("formatted value = %q, want %q", got, want)
		}
	}
}
