package read

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

// Memory that a killed pod has freed and that MemAvailable does not count yet is counted by the
// full look, for a zoneinfo of any size; a node without the file is judged without it.
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
		t.Errorf("memory without zoneinfo = %+v, want no figure", node.Memory)
	}
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", 1000) + "    count: 24000\n    count: 514\n"
	if err := os.WriteFile(filepath.Join(dir, "proc/zoneinfo"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c.PerCPU(&node)
	if got := node.Memory.Available(stats.MemoryAvailableKernel).Value - without.Value; got != 24514*uint64(os.Getpagesize()) {
		t.Errorf("free memory is %d bytes more, want 24514 pages", got)
	}
}
