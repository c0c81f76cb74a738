package cgroup

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// seed gives a fuzz test the files of the recorded kernels.
func seed(f *testing.F, names ...string) {
	f.Helper()
	for _, name := range names {
		for _, text := range recorded(f, name) {
			f.Add(text)
		}
	}
}

// checkMalformed checks that the error of a parser is ErrMalformed.
func checkMalformed(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrMalformed) {
		t.Errorf("parser error %v is not ErrMalformed", err)
	}
}

// naive is the obvious parser of flat keyed files. With stop set, it ends after all keys were
// found.
func naive(b []byte, early bool, keys ...string) (map[string]uint64, bool) {
	got := map[string]uint64{}
	for line := range strings.SplitSeq(string(b), "\n") {
		key, value, _ := strings.Cut(line, " ")
		if !slices.Contains(keys, key) {
			continue
		}
		v, err := strconv.ParseUint(value, 10, 64)
		if err != nil || strings.HasPrefix(value, "+") {
			return nil, false
		}
		if got[key] = v; early && len(got) == len(keys) {
			break
		}
	}
	return got, len(got) == len(keys)
}

func FuzzParseMemoryStat(f *testing.F) {
	seed(f, "memory.stat")
	f.Fuzz(func(t *testing.T, b []byte) {
		var s MemoryStat
		err := ParseMemoryStat(b, &s)
		checkMalformed(t, err)
		want, ok := naive(b, true, "anon", "file", "shmem", "inactive_file")
		if ok != (err == nil) || ok && s != (MemoryStat{want["anon"], want["file"], want["shmem"], want["inactive_file"]}) {
			t.Errorf("got %+v, %v; the naive parser returned %v, %v", s, err, want, ok)
		}
	})
}

func FuzzParseMemoryDetail(f *testing.F) {
	seed(f, "memory.stat")
	f.Fuzz(func(t *testing.T, b []byte) {
		var d MemoryDetail
		err := ParseMemoryDetail(b, &d)
		checkMalformed(t, err)
		if err != nil {
			return
		}
		want, ok := naive(b, false, "anon", "file", "shmem", "inactive_file")
		if !ok || d.MemoryStat != (MemoryStat{want["anon"], want["file"], want["shmem"], want["inactive_file"]}) {
			t.Errorf("got %+v; the naive parser returned %v, %v", d, want, ok)
		}
		if faults, ok := naive(b, false, "pgfault"); ok != d.HasPgFault || d.PgFault != faults["pgfault"] {
			t.Errorf("pgfault %d, %v; the naive parser returned %v, %v", d.PgFault, d.HasPgFault, faults, ok)
		}
	})
}

func FuzzParseMemoryEvents(f *testing.F) {
	seed(f, "memory.events", "memory.events.local")
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseMemoryEvents(b)
		checkMalformed(t, err)
		want, ok := naive(b, false, "low", "high", "max", "oom", "oom_kill")
		e.OOMGroupKill = 0
		if err == nil && (!ok || e != MemoryEvents{want["low"], want["high"], want["max"], want["oom"], want["oom_kill"], 0}) {
			t.Errorf("got %+v; the naive parser returned %v, %v", e, want, ok)
		}
	})
}

func FuzzParseCPUUsage(f *testing.F) {
	seed(f, "cpu.stat")
	f.Fuzz(func(t *testing.T, b []byte) {
		usage, err := parseCPUUsage(b)
		checkMalformed(t, err)
		if usage < 0 {
			t.Errorf("parsed CPU usage is negative: %v", usage)
		}
	})
}

func FuzzParseCPUMax(f *testing.F) {
	seed(f, "cpu.max")
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseCPUMax(b)
		checkMalformed(t, err)
		if err != nil {
			return
		}
		quota := "max"
		if !m.Unlimited {
			quota = strconv.FormatInt(m.Quota.Microseconds(), 10)
		}
		again, err := ParseCPUMax([]byte(quota + " " + strconv.FormatInt(m.Period.Microseconds(), 10) + "\n"))
		if err != nil || again != m || m.Period <= 0 || m.Quota < 0 || m.Unlimited && m.Quota != 0 {
			t.Errorf("%+v, printed and read again: %+v, %v", m, again, err)
		}
	})
}

func FuzzParseIOStat(f *testing.F) {
	seed(f, "io.stat")
	f.Add([]byte("8:0 8:16 rbytes=1 cost.usage=2\n(unknown) rbytes=3\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		visits := 0
		checkMalformed(t, ParseIOStat(b, func(uint32, uint32, IOStat) { visits++ }))
		if visits > bytes.Count(b, []byte("ios="))+bytes.Count(b, []byte("bytes=")) {
			t.Errorf("ParseIOStat visited %d devices, more than the text has known keys", visits)
		}
	})
}

func FuzzParsePSI(f *testing.F) {
	seed(f, "memory.pressure", "cpu.pressure", "io.pressure")
	f.Fuzz(func(t *testing.T, b []byte) {
		var s PSIStats
		err := ParsePSI(b, &s)
		checkMalformed(t, err)
		if err != nil {
			return
		}
		for _, d := range []PSIData{s.Some, s.Full} {
			if !(d.Avg10 >= 0 && d.Avg60 >= 0 && d.Avg300 >= 0 && d.Total >= 0) {
				t.Errorf("ParsePSI accepted implausible values: %+v", s)
			}
		}
		if !s.HasSome && !s.HasFull || !s.HasSome && s.Some != (PSIData{}) || !s.HasFull && s.Full != (PSIData{}) {
			t.Errorf("ParsePSI set values without their line: %+v", s)
		}
	})
}

func FuzzParseLimit(f *testing.F) {
	seed(f, "memory.max", "pids.max", "memory.swap.max")
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseLimit(b)
		checkMalformed(t, err)
		text := "max"
		if !l.Unlimited {
			text = strconv.FormatUint(l.Bytes, 10)
		}
		if again, errAgain := ParseLimit([]byte(text)); err == nil && (again != l || errAgain != nil) {
			t.Errorf("%+v, printed and read again: %+v, %v", l, again, errAgain)
		}
	})
}

func FuzzParseUint(f *testing.F) {
	seed(f, "memory.current", "pids.current", "cpu.weight")
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseUint(b)
		checkMalformed(t, err)
		text := strings.TrimSuffix(string(b), "\n")
		want, wantErr := strconv.ParseUint(text, 10, 64)
		if (err == nil) != (wantErr == nil && text[0] != '+') || err == nil && got != want {
			t.Errorf("ParseUint of %q = %d, error %v; strconv returned %d, error %v", b, got, err, want, wantErr)
		}
	})
}

func FuzzParseEvents(f *testing.F) {
	seed(f, "cgroup.events")
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEvents(b)
		checkMalformed(t, err)
		if want, ok := naive(b, false, "populated"); err == nil && (!ok || e.Populated != (want["populated"] == 1)) {
			t.Errorf("got %+v; the naive parser returned %v, %v", e, want, ok)
		}
	})
}

// A list of processes cut at any byte parses to the same list.
func FuzzParseProcs(f *testing.F) {
	for _, text := range recorded(f, "cgroup.procs") {
		f.Add(text, 7)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var want, got []int
		_, wantErr := parseProcs(b, true, func(pid int) { want = append(want, pid) })
		checkMalformed(t, wantErr)
		if cut < 0 || cut > len(b) {
			return
		}
		visit := func(pid int) { got = append(got, pid) }
		rest, err := parseProcs(b[:cut], false, visit)
		if err == nil {
			_, err = parseProcs(append(slices.Clone(rest), b[cut:]...), true, visit)
		}
		if (err == nil) != (wantErr == nil) || err == nil && !slices.Equal(got, want) {
			t.Errorf("list cut at byte %d: %v, error %v; as a whole: %v, error %v", cut, got, err, want, wantErr)
		}
	})
}

func FuzzDirents(f *testing.F) {
	for _, dir := range []string{".", "..", "testdata", "/"} {
		d, err := os.Open(dir)
		if err != nil {
			f.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, err := unix.Getdents(int(d.Fd()), buf)
		d.Close()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(buf[:n])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		directories(b, func(name []byte) {
			total += len(name)
			if bytes.IndexByte(name, 0) >= 0 || string(name) == "." || string(name) == ".." {
				t.Errorf("directory entry with invalid name %q", name)
			}
		})
		if total > len(b) {
			t.Errorf("%d bytes of names in %d", total, len(b))
		}
	})
}
