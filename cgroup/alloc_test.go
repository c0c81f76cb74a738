package cgroup

import (
	"errors"
	"fmt"
	"testing"

	"jettison/internal/base/race"
)

// Reads that every look does for every pod allocate nothing.
func TestReadingDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	_, cgroups := recordedTree(t, "6.12")
	g := group(t, cgroups, "kubepods")
	dir, err := cgroups.OpenDir("kubepods")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	buf, names := make([]byte, 8192), 0
	for name, read := range map[string]func() error{
		"MemoryCurrent":     func() error { _, err := g.MemoryCurrent(buf); return err },
		"MemorySwapCurrent": func() error { _, err := g.MemorySwapCurrent(buf); return err },
		"MemoryMax":         func() error { _, err := g.MemoryMax(buf); return err },
		"MemoryEvents":      func() error { _, err := g.MemoryEvents(buf); return err },
		"MemoryEventsLocal": func() error { _, err := g.MemoryEventsLocal(buf); return err },
		"MemoryStat":        func() error { var s MemoryStat; return g.MemoryStat(buf, &s) },
		"MemoryDetail":      func() error { var d MemoryDetail; return g.MemoryDetail(buf, &d) },
		"CPUUsage":          func() error { _, err := g.CPUUsage(buf); return err },
		"IOStat":            func() error { var s IOStat; return g.IOStat(buf, &s) },
		"PIDsCurrent":       func() error { _, err := g.PIDsCurrent(buf); return err },
		"Events":            func() error { _, err := g.Events(buf); return err },
		"Pressure": func() error {
			var s PSIStats
			return errors.Join(g.Pressure(CPU, buf, &s), g.Pressure(Memory, buf, &s), g.Pressure(IO, buf, &s))
		},
		"Dir.Children": func() error { return dir.Children(buf, func(name []byte) { names += len(name) }) },
		"FS.OpenDir of none": func() error {
			if _, err := cgroups.OpenDir("kubepods.slice/kubepods-burstable.slice"); err != ErrVanished {
				return fmt.Errorf("got %w, want the bare ErrVanished", err)
			}
			return nil
		},
	} {
		if err := read(); err != nil {
			t.Fatalf("reading file %s failed with: %v", name, err)
		}
		if n := testing.AllocsPerRun(100, func() { err = read() }); n != 0 || err != nil {
			t.Errorf("reading %s made %v allocations (error %v), want 0", name, n, err)
		}
	}
}

func TestParsingDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	text := recorded(t, "memory.stat")["6.12/cgroup/kubepods/memory.stat"]
	var d MemoryDetail
	n := testing.AllocsPerRun(100, func() {
		if err := ParseMemoryDetail(text, &d); err != nil {
			t.Error(err)
		}
	})
	if n != 0 || d.KernelStack != value(t, text, "kernel_stack") {
		t.Errorf("parsing made %v allocations (kernel_stack %d), want 0", n, d.KernelStack)
	}
}
