package cgroup

import (
	"errors"
	"testing"
)

func TestParsePIDsEvents(t *testing.T) {
	for text, want := range map[string]uint64{"max 0\n": 0, "max.imposed 2\nmax 7\n": 7} {
		if got, err := parsePIDsEvents([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "max\n", "max max\n", "other 1\n"} {
		if got, err := parsePIDsEvents([]byte(text)); !errors.Is(err, ErrMalformed) || got != 0 {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
}

func TestParseStat(t *testing.T) {
	if got, err := ParseStat([]byte("nr_dying_descendants 2\nnr_subsys_cpu x\nnr_descendants 1\n")); err != nil || got != (Stat{1, 2}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{"", "nr_descendants 1\n", "nr_descendants 1\nnr_dying_descendants -1\n"} {
		if got, err := ParseStat([]byte(text)); !errors.Is(err, ErrMalformed) || got != (Stat{}) {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
}
