package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/stats"
)

// arcText has the lines of OpenZFS 2.2 that matter, with others before, between and after them.
func arcText(size, least string, evictable ...uint64) string {
	var b strings.Builder
	b.WriteString("13 1 0x01 147 39984 6137246467 2101863224093\nname                            type data\nhits                            4    182763\n")
	fmt.Fprintf(&b, "c                               4    17179869184\nc_min                           4    %s\n", least)
	fmt.Fprintf(&b, "c_max                           4    17179869184\nsize                            4    %s\n", size)
	fmt.Fprintf(&b, "compressed_size                 4    21474836480\nmru_size                        4    1\n")
	for i, v := range evictable {
		fmt.Fprintf(&b, "%-31s 4    %d\n", []string{"mru_evictable_data", "mru_evictable_metadata", "mfu_evictable_data", "mfu_evictable_metadata"}[i], v)
	}
	b.WriteString("memory_throttle_count           4    0\nmemory_available_bytes          3    -1217331200\n")
	return b.String()
}

func TestParseARCStats(t *testing.T) {
	for _, c := range []struct {
		what, text string
		want       uint64
		malformed  bool
	}{
		{"above the minimum", arcText("21474836480", "1073741824"), 20401094656, false},
		{"at the minimum", arcText("1073741824", "1073741824"), 0, false},
		{"below the minimum", arcText("1", "1073741824"), 0, false},
		{"mostly pinned", arcText("21474836480", "1073741824", 100, 20, 3, 4), 127, false},
		{"a version without all lists", arcText("21474836480", "1073741824", 100, 20), 20401094656, false},
		{"negative", arcText("-1", "1073741824"), 0, true},
		{"no number", arcText("x", "1073741824"), 0, true},
		{"without a size", "c_min 4 1\n", 0, true},
		{"empty", "", 0, true},
	} {
		got, err := ParseARCStats([]byte(c.text))
		if got != c.want || errors.Is(err, ErrMalformed) != c.malformed {
			t.Errorf("%s: shrinkable bytes = %d, %v; want %d, malformed %v", c.what, got, err, c.want, c.malformed)
		}
	}
}

// A module that is loaded later is found. The descriptor then stays open.
func TestARCIsFoundLater(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "meminfo"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	buf := make([]byte, 32<<10)
	if found, err := p.FindARC(); found || err != nil {
		t.Fatalf("FindARC() without ZFS = %v, %v, want false", found, err)
	}
	if v, err := p.ShrinkableARC(buf); v.OK || err != nil {
		t.Fatalf("ShrinkableARC() without ZFS = %+v, %v, want absent", v, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "spl/kstat/zfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("filler                          4    0\n", 150) + arcText("5000", "1000") // more than a page
	if err := os.WriteFile(filepath.Join(dir, arcStats), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err := p.FindARC(); !found || err != nil {
		t.Fatalf("FindARC() = %v, %v, want true", found, err)
	}
	if v, err := p.ShrinkableARC(buf); v != stats.Some[uint64](4000) || err != nil {
		t.Errorf("ShrinkableARC() = %+v, %v, want 4000", v, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = p.ShrinkableARC(buf) }); n > 0 {
		t.Errorf("ShrinkableARC() allocates %v times, want never", n)
	}
}
