package cgroup

import (
	"errors"
	"maps"
	"math"
	"testing"
)

func TestParseIOStat(t *testing.T) {
	type device [2]uint32
	for text, want := range map[string]map[device]IOStat{
		"": {},
		"254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n":                             {{254, 0}: {1, 2}},
		"8:0 \n8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0 cost.usage=7 cost.wait=x": {{8, 16}: {1, 2}},
		"8:0 cost.usage=1\n":                 {},                         // nothing known: absent, not zero
		"253:0 254:0 rbytes=1\n":             {{254, 0}: {ReadBytes: 1}}, // v5.15 to v5.18
		"8:0 rbytes=1 8:16 rbytes=2\n":       {{8, 0}: {ReadBytes: 1}, {8, 16}: {ReadBytes: 2}},
		"8:0 word rbytes=1\n":                {{8, 0}: {ReadBytes: 1}},
		"(unknown) rbytes=1\n8:0 rbytes=2\n": {{8, 0}: {ReadBytes: 2}},
	} {
		got := map[device]IOStat{}
		if err := ParseIOStat([]byte(text), func(major, minor uint32, s IOStat) { got[device{major, minor}] = s }); err != nil || !maps.Equal(got, want) {
			t.Errorf("ParseIOStat of %q = %v, error %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"8 rbytes=1\n", "rbytes=1\n", "8:x rbytes=1\n", "8:4294967296 rbytes=1\n", "8:0 rbytes=\n", "8:0 rbytes=x\n", "8:0 rbytes=1=2\n"} {
		if err := ParseIOStat([]byte(text), func(uint32, uint32, IOStat) {}); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseIOStat of malformed %q: error %v, want ErrMalformed", text, err)
		}
	}
}

func TestIOStatSumsOverDevices(t *testing.T) {
	fs := tree(t, map[string]string{"a/cgroup.procs": "", "a/io.stat": "8:0 rbytes=1 wbytes=2\n9:0 \n8:16 rbytes=10 wbytes=20 dios=3\n"})
	got := IOStat{WriteBytes: 99}
	if err := group(t, fs, "a").IOStat(make([]byte, 4096), &got); err != nil || got != (IOStat{ReadBytes: 11, WriteBytes: 22}) {
		t.Errorf("sum over devices = %+v, error %v", got, err)
	}
	if got.Add(IOStat{ReadBytes: math.MaxUint64}); got.ReadBytes != math.MaxUint64 {
		t.Errorf("the sum wrapped around: %d", got.ReadBytes)
	}
}
