package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// arcText has the lines of OpenZFS 2.2 that matter, with others before, between and after them.
func arcText(size, least string, evictable ...uint64) string {
	var b strings.Builder
	b.WriteString("13 1 0x01 147 39984 6137246467 2101863224093\nname                            type data\nhits                            4    182763\n")
	fmt.Fprintf(&b, "c                               4    17179869184\nc_min                           4    %s\n", least)
	fmt.Fprintf(&b, "c_max                           4    34359738368\nsize                            4    %s\n", size)
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
		{"above the maximum, which the kernel fails to enforce (openzfs#17052)", arcText("272408805990", "1073741824", 200000000000, 1000000000, 50000000000, 1000000000), 34359738368 - 1073741824, false},
		{"hardly evictable (openzfs#14005)", arcText("40000000000", "1073741824", 12800, 134144, 512, 512), 147968, false},
		{"without a size", "c_min 4 1\n", 0, true},
		{"empty", "", 0, true},
	} {
		got, err := ParseARCStats([]byte(c.text))
		if got != c.want || errors.Is(err, ErrMalformed) != c.malformed {
			t.Errorf("%s: shrinkable bytes = %d, %v; want %d, malformed %v", c.what, got, err, c.want, c.malformed)
		}
	}
}

// procWith returns a proc file system with files.
func procWith(t *testing.T, files map[string]string) *Proc {
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// A large file is read to its end, without an allocation. After an error, as when the module was
// loaded again, the file is opened again.
func TestARC(t *testing.T) {
	if procWith(t, map[string]string{"meminfo": ""}).ARC() != nil {
		t.Error("ARC() without ZFS returned a reader")
	}
	p := procWith(t, map[string]string{"meminfo": "", arcStats: strings.Repeat("filler                          4    0\n", 150) + arcText("5000", "1000")})
	a := p.ARC()
	defer a.Close()
	if v, err := a.Shrinkable(); v != 4000 || err != nil {
		t.Errorf("Shrinkable() = %d, %v, want 4000", v, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = a.Shrinkable() }); n > 0 {
		t.Errorf("Shrinkable() allocates %v times, want never", n)
	}
	name := a.name
	if err := errors.Join(os.Remove(name), os.Mkdir(name, 0o700)); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if _, err := a.Shrinkable(); err == nil {
		t.Error("Shrinkable() of a directory returned no error")
	}
	if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte(arcText("2000", "1000")), 0o600)); err != nil {
		t.Fatal(err)
	}
	if v, err := a.Shrinkable(); v != 1000 || err != nil {
		t.Errorf("Shrinkable() after an error = %d, %v, want 1000", v, err)
	}
}

// In a container, lxcfs shows the memory of the container, and huge pages and ARC are of the host.
func TestMemoryOfTheHostDoesNotCount(t *testing.T) {
	p := procWith(t, map[string]string{"meminfo": "MemTotal: 16 kB\nHugetlb: 67108864 kB\n", arcStats: arcText("2000", "1000")})
	for _, virtual := range []bool{false, true} {
		p.virtual = virtual
		pages, err := p.HugePages(make([]byte, 8<<10))
		if a := p.ARC(); err != nil || (pages == 0) != virtual || (a == nil) != virtual {
			t.Errorf("meminfo by lxcfs %v: huge pages %d, ARC %v, error %v; want them only on a host", virtual, pages, a, err)
		}
	}
}
