package procfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"jettison/stats"
)

// A node of 256 GiB with 240 pages of 1 GiB and 100 of 2 MiB.
func TestParseHugePages(t *testing.T) {
	const sizes = "HugePages_Total:     100\nHugePages_Free:       10\nHugePages_Rsvd:        0\nHugePages_Surp:        0\nHugepagesize:       2048 kB\n"
	for _, c := range []struct {
		what, text string
		want       uint64
		malformed  bool
	}{
		{"of all sizes", "MemTotal: 268435456 kB\n" + sizes + "Hugetlb:        251863040 kB\nDirectMap4k: 1 kB\n", 251863040 << 10, false},
		{"of an older kernel", sizes, 200 << 20, false},
		{"of a kernel without them", "MemTotal: 1 kB\n", 0, false},
		{"none", "HugePages_Total:       0\nHugepagesize:       2048 kB\nHugetlb:               0 kB\n", 0, false},
		{"too many", "HugePages_Total: 18446744073709551615\nHugepagesize: 2048 kB\n", 0, true},
		{"no number", "HugePages_Total: x\n", 0, true},
		{"no size", "Hugetlb: 5\n", 0, true},
	} {
		if got, err := ParseHugePages([]byte(c.text)); got != c.want || errors.Is(err, ErrMalformed) != c.malformed {
			t.Errorf("%s: bytes of huge pages = %d, %v; want %d, malformed %v", c.what, got, err, c.want, c.malformed)
		}
	}
}

func TestParseMemInfo(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       MemInfo
		malformed  bool
	}{
		{"all", "MemTotal:  990068 kB\nMemFree: 1 kB\nMemAvailable:    785012 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n", MemInfo{Total: stats.Some[uint64](990068 << 10), Available: stats.Some[uint64](785012 << 10), SwapTotal: stats.Some[uint64](0), SwapFree: stats.Some[uint64](0)}, false},
		{"absent is not zero", "MemTotal: 4 kB\nHugePages_Total: 0\n", MemInfo{Total: stats.Some[uint64](4096)}, false},
		{"zero is not absent", "MemAvailable: 0 kB\n", MemInfo{Available: stats.Some[uint64](0)}, false},
		{"one-word lines", "\nx\n:\nMemTotal: 4 kB", MemInfo{Total: stats.Some[uint64](4096)}, false},
		{"empty", "", MemInfo{}, false},
		{"no unit", "MemTotal: 4\n", MemInfo{}, true},
		{"no number", "MemTotal: kB\n", MemInfo{}, true},
		{"another unit", "MemTotal: 4 MB\n", MemInfo{}, true},
		{"too large for bytes", "MemTotal: 18014398509481985 kB\n", MemInfo{}, true},
	} {
		var got MemInfo
		err := ParseMemInfo([]byte(c.text), &got)
		if errors.Is(err, ErrMalformed) != c.malformed || !c.malformed && (err != nil || got != c.want) {
			t.Errorf("ParseMemInfo with %s returned %+v with error %v", c.name, got, err)
		}
	}
}

func FuzzParseMemInfo(f *testing.F) {
	f.Add([]byte("MemTotal:  990068 kB\nMemAvailable:    785012 kB\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m MemInfo
		if err := ParseMemInfo(b, &m); err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
	})
}

func TestSelfCgroup(t *testing.T) {
	for text, want := range map[string]struct {
		path string
		ok   bool
	}{
		"0::/kubepods/burstable/podA/c\n":               {"kubepods/burstable/podA/c", true},
		"5:cpu:/x\n0::/system.slice/jettison.service\n": {"system.slice/jettison.service", true},
		"0::/\n":            {"", false}, // a separate cgroup namespace
		"0::/../../other\n": {"../../other", false},
	} {
		dir := t.TempDir()
		for name, content := range map[string]string{"meminfo": "", "self/cgroup": text} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		p, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		path, ok, err := p.SelfCgroup()
		p.Close()
		if path != want.path || ok != want.ok || err != nil {
			t.Errorf("SelfCgroup of %q returned %q, ok %v, error %v", text, path, ok, err)
		}
	}
}
