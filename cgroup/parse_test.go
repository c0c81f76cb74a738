package cgroup

import (
	"errors"
	"math"
	"path"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// recorded returns every recorded file of a name, over all kernels.
func recorded(t testing.TB, base string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, kernel := range []string{"6.1", "6.12"} {
		archive, err := txtar.ParseFile("testdata/" + kernel + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if path.Base(f.Name) == base {
				out[kernel+"/"+f.Name] = f.Data
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("no recorded %s", base)
	}
	return out
}

func TestParseMemoryStatOfRealKernels(t *testing.T) {
	for name, text := range recorded(t, "memory.stat") {
		var s MemoryStat
		if err := ParseMemoryStat(text, &s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s.File < s.Shmem {
			t.Errorf("%s: file %d < shmem %d, which is a part of it", name, s.File, s.Shmem)
		}
	}
}

func TestParseMemoryStat(t *testing.T) {
	const whole = "anon 1\nfile 2\nkernel 7\nshmem 3\ninactive_file 4\n"
	for _, c := range []struct {
		name, text string
		want       MemoryStat
		malformed  bool
	}{
		{"all", whole, MemoryStat{Anon: 1, File: 2, Shmem: 3, InactiveFile: 4}, false},
		{"unknown keys are skipped, whatever they hold", "new_one abc def\n" + whole + "other\n", MemoryStat{1, 2, 3, 4}, false},
		{"no newline at the end", strings.TrimSuffix(whole, "\n"), MemoryStat{1, 2, 3, 4}, false},
		{"a key that nobody asks for is missing", strings.Replace(whole, "kernel 7\n", "", 1), MemoryStat{1, 2, 3, 4}, false},
		{"a needed key is missing", strings.Replace(whole, "anon 1\n", "", 1), MemoryStat{}, true},
		{"empty", "", MemoryStat{}, true},
		{"a known key without a value", strings.Replace(whole, "anon 1", "anon", 1), MemoryStat{}, true},
		{"a known key with a word", strings.Replace(whole, "anon 1", "anon x", 1), MemoryStat{}, true},
		{"a negative number", strings.Replace(whole, "anon 1", "anon -1", 1), MemoryStat{}, true},
		{"a number beyond 64 bits", strings.Replace(whole, "anon 1", "anon 18446744073709551616", 1), MemoryStat{}, true},
		{"the largest number", strings.Replace(whole, "anon 1", "anon 18446744073709551615", 1), MemoryStat{math.MaxUint64, 2, 3, 4}, false},
	} {
		var got MemoryStat
		err := ParseMemoryStat([]byte(c.text), &got)
		if c.malformed != errors.Is(err, ErrMalformed) || !c.malformed && (err != nil || got != c.want) {
			t.Errorf("%s: got %+v, %v", c.name, got, err)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]Limit{"max\n": {Unlimited: true}, "max": {Unlimited: true}, "0\n": {}, "4096\n": {Bytes: 4096}} {
		if got, err := ParseLimit([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", "maximum\n", "-1\n", "1 2\n", "1\n\n", " 1"} {
		if got, err := ParseLimit([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: got %+v, %v, want ErrMalformed", text, got, err)
		}
	}
}

func TestParseEvents(t *testing.T) {
	for name, text := range recorded(t, "cgroup.events") {
		if _, err := ParseEvents(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]Events{
		"populated 1\nfrozen 0\n":           {Populated: true},
		"populated 0\nfrozen 1\n":           {Frozen: true},
		"populated 0\n":                     {}, // before v5.2
		"frozen 0\nfuture x\npopulated 1\n": {Populated: true},
	} {
		if got, err := ParseEvents([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "frozen 0\n", "populated\n", "populated 2\n", "populated yes\n"} {
		if _, err := ParseEvents([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: got %v, want ErrMalformed", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, base := range []string{"memory.stat", "cgroup.events", "memory.max", "memory.current"} {
		for _, text := range recorded(f, base) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s MemoryStat
		if err := ParseMemoryStat(b, &s); err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("memory.stat: %v", err)
		}
		if _, err := ParseEvents(b); err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("cgroup.events: %v", err)
		}
		if l, err := ParseLimit(b); err != nil && !errors.Is(err, ErrMalformed) || l.Unlimited && l.Bytes != 0 {
			t.Errorf("limit: %+v, %v", l, err)
		}
	})
}

func TestParsingMemoryStatDoesNotAllocate(t *testing.T) {
	for _, text := range recorded(t, "memory.stat") {
		var s MemoryStat
		if n := testing.AllocsPerRun(100, func() { _ = ParseMemoryStat(text, &s) }); n != 0 {
			t.Fatalf("%v allocations", n)
		}
		return
	}
}
