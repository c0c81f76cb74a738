package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/e2e/guestapi"
)

const mib = 1 << 20

// files writes the sampler's input files into a folder: the same for proc and for the root of the
// cgroups.
func files(t *testing.T, dir string, contents map[string]string) {
	t.Helper()
	for name, text := range contents {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The files of a kernel 6.12, shortened.
var node = map[string]string{
	"meminfo": "MemTotal:         993304 kB\nMemFree:          102400 kB\nMemAvailable:     122880 kB\nBuffers:            1024 kB\n" +
		"Cached:           204800 kB\nSwapCached:            0 kB\nActive:            51200 kB\nInactive:         512000 kB\n" +
		"Active(file):      10240 kB\nInactive(file):    30720 kB\nAnonPages:        614400 kB\nKReclaimable:  1 kB\n" +
		"Slab:              40960 kB\nSReclaimable:      1 kB\nKernelStack:        2048 kB\nPageTables:         2048 kB\nPercpu:              512 kB\n",
	"memory.stat":       "anon 629145600\nfile 210763776\nkernel 4096\ninactive_anon 7\nactive_anon 7\ninactive_file 31457280\nactive_file 10485760\n",
	"vmstat":            "nr_free_pages 25600\noom_kill 3\n",
	"zoneinfo":          "Node 0, zone      DMA\n  pagesets\n    cpu: 0\n              count:    10\n              high:     14\n              batch:    1\nNode 0, zone    DMA32\n    cpu: 0\n              count:    2550\n              high:     14\n",
	"pod/cgroup.events": "populated 1\nfrozen 0\n",
}

func TestMemoryFiles(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, node)
	m, err := openMemory(dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	got, err := m.all()
	if err != nil {
		t.Fatal(err)
	}
	got.MonotonicNS = 0
	want := guestapi.Memory{
		Total: 993304 << 10, WorkingSet: 629145600 + 210763776 - 31457280, MemAvailable: 120 * mib,
		PerCPUFree: 2560 * 4096, OOMKills: 3,
	}
	if got != want {
		t.Errorf("memory read from the files: got %+v\nwant %+v", got, want)
	}
	if got := m.estimate(); got != 600*mib+200*mib+mib-30*mib {
		t.Errorf("estimate of the working set = %d MiB", got/mib)
	}
}

// Each way of reading a node's memory, and how often it reads an expensive file.
func TestAvailable(t *testing.T) {
	const workingSet = 993304<<10 - (629145600 + 210763776 - 31457280) // 199 MiB
	for _, c := range []struct {
		by        string
		threshold int64
		want      int64
		dear      int64 // reads after the first sample, which calibrates
	}{
		{guestapi.MemAvailable, 100 * mib, 120 * mib, 0},
		{guestapi.Kernel, 100 * mib, 120 * mib, 0},
		{guestapi.Kernel, 110 * mib, 130 * mib, 0},
		{guestapi.Kernel, 130*mib + 1, 130 * mib, 1},
		{guestapi.WorkingSet, 100 * mib, workingSet, 0},
		{guestapi.WorkingSet, workingSet, workingSet, 1},
		{guestapi.Lower, 110 * mib, 130 * mib, 0},
		{guestapi.Lower, 130 * mib, 130 * mib, 1},
		{guestapi.Lower, workingSet, 130 * mib, 1},
	} {
		dir := t.TempDir()
		files(t, dir, node)
		p, err := newProbe(guestapi.SampleRequest{By: c.by, Threshold: c.threshold, Cgroup: "pod"}, dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.step(1); err != nil {
			t.Fatal(err)
		}
		before := p.out.Dear
		got, err := p.available(2)
		if err != nil || got != c.want || p.out.Dear-before != c.dear {
			t.Errorf("%s below %d MiB: available %d MiB, %d expensive reads (%v), want %d and %d", c.by, c.threshold/mib, got/mib, p.out.Dear-before, err, c.want/mib, c.dear)
		}
	}
}

// An estimate that reports the memory as back is verified by an exact read.
func TestEstimatesAreChecked(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, node)
	p, err := newProbe(guestapi.SampleRequest{By: guestapi.Kernel, Threshold: 180 * mib, Cgroup: "pod"}, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.available(1); got != 130*mib || err != nil {
		t.Fatalf("%d MiB available in the first sample (%v)", got/mib, err)
	}
	// 70 MiB of anonymous memory are unmapped, and not yet on any free list.
	files(t, dir, map[string]string{"meminfo": strings.Replace(node["meminfo"], "614400 kB", "542720 kB", 1)})
	if got, err := p.available(2); got != 130*mib || err != nil {
		t.Errorf("%d MiB available during the unmap (%v)", got/mib, err)
	}
	if p.out.Dear != 2 || p.out.MaxOff != 70*mib {
		t.Errorf("sample during the unmap = %+v", p.out)
	}
	// The memory is free: values read during the transition are no longer valid.
	freed := strings.NewReplacer("614400 kB", "542720 kB", "MemFree:          102400 kB", "MemFree:          174080 kB", "122880 kB", "143360 kB")
	files(t, dir, map[string]string{"meminfo": freed.Replace(node["meminfo"])})
	if got, err := p.available(3); got != 150*mib || err != nil {
		t.Errorf("%d MiB available after the unmap (%v)", got/mib, err)
	}
}

// The sampler judges levels in MiB, one a millisecond, with a threshold of 100 and 150 for all
// memory back. "e" after a level: the sample found the victim's cgroup empty.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name, levels                string
		crossed, empty, back, whole int64
		lowest                      int64
	}{
		{"never below", "110 101 100", 0, 0, 0, 0, 100},
		{"killed", "110 99 95 97e 103 140 151", 2, 4, 5, 7, 95},
		{"back before it is empty", "101 90 120 160e 160", 2, 4, 3, 4, 90},
		{"a dip before the kill", "101 99 101 98 97e 120", 2, 5, 6, 0, 97},
		{"back at once", "99 99 150e", 1, 3, 3, 3, 99},
		{"a later leaker", "99 98e 120 90 120", 1, 2, 3, 0, 90},
		{"not back", "99e 98", 1, 1, 0, 0, 98},
	} {
		p := &probe{req: guestapi.SampleRequest{Threshold: 100, Whole: 150}}
		p.reset()
		for i, word := range strings.Fields(c.levels) {
			level, empty := strings.CutSuffix(word, "e")
			v, _ := number([]byte(level))
			p.judge(int64(i+1), v)
			if empty {
				p.out.Empty = int64(i + 1)
			}
		}
		o := p.out
		if o.Crossed != c.crossed || o.Empty != c.empty || o.Back != c.back || o.Whole != c.whole || o.Lowest != c.lowest {
			t.Errorf("%s: sample after all judgements = %+v", c.name, o)
		}
	}
}

func TestGaps(t *testing.T) {
	p := &probe{}
	p.reset()
	now := int64(1)
	for range 200 {
		p.count(now)
		now += 1e6
	}
	p.count(now + 7e6)
	p.finish()
	if p.out.MaxGap != 8e6 || p.out.GapP99 < 1e6 || p.out.GapP99 > 1e6+int64(gapBucket) || p.out.Samples != 201 {
		t.Errorf("gaps of the samples = %+v", p.out)
	}
}

func TestPopulated(t *testing.T) {
	for text, want := range map[string]bool{"populated 1\nfrozen 0\n": true, "populated 0\nfrozen 0\n": false, "frozen 1\npopulated 0\n": false, "": true, "populated": true} {
		dir := t.TempDir()
		files(t, dir, node)
		files(t, dir, map[string]string{"pod/cgroup.events": text})
		p, err := newProbe(guestapi.SampleRequest{Cgroup: "pod"}, dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.populated(); got != want {
			t.Errorf("result of populated with cgroup.events %q = %v", text, got)
		}
	}
	if p := (&probe{mem: &memoryFiles{}, events: -1}); p.populated() {
		t.Error("a removed cgroup counts as populated, want empty")
	}
}

func TestNoSampleAllocates(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, node)
	p, err := newProbe(guestapi.SampleRequest{Threshold: 200 * mib, Whole: 300 * mib, Cgroup: "pod"}, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = p.step(monotonic()) }); n != 0 || p.out.Crossed == 0 || p.out.Dear == 0 {
		t.Errorf("%v allocations per sample, want 0: %+v", n, p.out)
	}
}

func TestSampleRequestsAreChecked(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, node)
	if _, err := newProbe(guestapi.SampleRequest{By: "feeling", Cgroup: "pod"}, dir, dir); err == nil || !strings.Contains(err.Error(), `"feeling"`) {
		t.Error(err)
	}
	if _, err := newProbe(guestapi.SampleRequest{Cgroup: "gone"}, dir, dir); err == nil || !strings.Contains(err.Error(), "gone/cgroup.events") {
		t.Error(err)
	}
}

// For any content of the files there is no panic, and a found field is at its recorded place.
func FuzzScan(f *testing.F) {
	for _, text := range node {
		f.Add([]byte(text), 7)
	}
	f.Add([]byte("anon 1\nanon 99999999999999999999\nfile\ninactive_file -1"), 900)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		fields := []field{{name: "anon ", at: max(at, 0)}, {name: "oom_kill "}, {name: "MemTotal:"}}
		for i := range fields {
			if scan(b, fields[i:i+1], 1) && !strings.HasPrefix(string(b[fields[i].at:]), fields[i].name) {
				t.Errorf("found field %q is not at %d", fields[i].name, fields[i].at)
			}
		}
		if pages, ok := sumCounts(b); ok && pages < 0 {
			t.Errorf("sum of pages = %d, want at least 0", pages)
		}
	})
}
