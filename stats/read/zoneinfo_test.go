package read

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

const zoneinfo = `Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 1234
  pages free     3840
        boost    0
        min      90
  pagesets
    cpu: 0
              count:    7
              high:     28
              batch:    7
  vm stats threshold: 4
    cpu: 1
              count:    0
Node 0, zone    DMA32
  pagesets
    cpu: 0
              count:    24507
`

func TestParseZoneInfo(t *testing.T) {
	if pages, err := ParseZoneInfo([]byte(zoneinfo)); pages != 24514 || err != nil {
		t.Errorf("got %d, %v", pages, err)
	}
	for _, bad := range []string{"", "Node 0, zone DMA\n", "count:\n", "count: x\n", "count: -1\n", "count: 99999999999\n"} {
		if pages, err := ParseZoneInfo([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: got %d, %v", bad, pages, err)
		}
	}
}

func FuzzParseZoneInfo(f *testing.F) {
	f.Add([]byte(zoneinfo))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := ParseZoneInfo(b); err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
	})
}

// What a killed pod has given back and MemAvailable does not count yet is counted by the dear look, of any size of file; a
// node without the file is judged without it.
func TestPerCPUListsCount(t *testing.T) {
	c, _, dir := recordedNode(t, "6.1")
	if err := os.Remove(filepath.Join(dir, "proc/zoneinfo")); err != nil {
		t.Fatal(err)
	}
	var node stats.NodeStats
	if err := c.Node(time.Unix(1000, 0), &node); err != nil {
		t.Fatal(err)
	}
	c.PerCPU(&node)
	without := node.Memory.Available(stats.MemoryAvailableKernel)
	if node.Memory.PerCPUFreeBytes.OK || !without.OK {
		t.Errorf("without zoneinfo: %+v", node.Memory)
	}
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", 1000) + zoneinfo
	if err := os.WriteFile(filepath.Join(dir, "proc/zoneinfo"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c.PerCPU(&node)
	if got := node.Memory.Available(stats.MemoryAvailableKernel).Value - without.Value; got != 24514*uint64(os.Getpagesize()) {
		t.Errorf("%d bytes more, want those of 24514 pages", got)
	}
}
