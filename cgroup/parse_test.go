package cgroup

import (
	"errors"
	"math"
	"path"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var kernels = []string{"6.1", "6.12"}

// recorded returns every recorded file of a name, over all kernels.
func recorded(t testing.TB, base string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, kernel := range kernels {
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
		t.Fatalf("no file %s in the recordings", base)
	}
	return out
}

func TestParseUint(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "0\n": 0, "007\n": 7, "18446744073709551615\n": math.MaxUint64} {
		if got, err := ParseUint([]byte(text)); err != nil || got != want {
			t.Errorf("ParseUint of %q returned %d with error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", "1\n\n", "\n1", " 1", "1 ", "+1", "-1", "0x1", "1.0", "max", "18446744073709551616", "99999999999999999999"} {
		if got, err := ParseUint([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseUint of malformed %q = %d, error %v, want ErrMalformed", text, got, err)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]Limit{"max\n": {Unlimited: true}, "max": {Unlimited: true}, "0\n": {}, "4096\n": {Bytes: 4096}} {
		if got, err := ParseLimit([]byte(text)); err != nil || got != want {
			t.Errorf("ParseLimit of %q returned %+v with error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", "maximum\n", "-1\n", "1 2\n", "1\n\n", " 1"} {
		if got, err := ParseLimit([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseLimit of malformed %q = %+v, error %v, want ErrMalformed", text, got, err)
		}
	}
}

func TestParseEvents(t *testing.T) {
	for name, text := range recorded(t, "cgroup.events") {
		if _, err := ParseEvents(text); err != nil {
			t.Errorf("parsing the recorded %s failed: %v", name, err)
		}
	}
	for text, want := range map[string]Events{
		"populated 1\nfrozen 0\n":           {Populated: true},
		"populated 0\nfrozen 1\n":           {},
		"populated 0\n":                     {}, // before v5.2
		"frozen 0\nfuture x\npopulated 1\n": {Populated: true},
	} {
		if got, err := ParseEvents([]byte(text)); err != nil || got != want {
			t.Errorf("ParseEvents of %q returned %+v with error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "frozen 0\n", "populated\n", "populated 2\n", "populated yes\n"} {
		if _, err := ParseEvents([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseEvents of malformed %q: error %v, want ErrMalformed", text, err)
		}
	}
}

// value finds a key's value in a recorded file with a naive search.
func value(t testing.TB, text []byte, key string) uint64 {
	t.Helper()
	for line := range strings.Lines(string(text)) {
		if word := strings.Fields(line); len(word) == 2 && word[0] == key {
			v, err := strconv.ParseUint(word[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("key %s is not in recorded file %.60q", key, text)
	return 0
}
