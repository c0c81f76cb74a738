package top

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"jettison/internal/base/terminal"
	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// testView returns a view after two looks, one second apart.
func testView() *view {
	at := time.Unix(1_700_000_000, 0)
	v := &view{before: map[string]reading{}}
	pod := func(name string, set, before, freed uint64, stalled float64) {
		p := stats.PodStats{PodRef: stats.PodReference{Namespace: "shop", Name: name, UID: name}, QOSClass: stats.Burstable, Announced: true}
		p.Memory.Time, p.Memory.WorkingSetBytes = at, stats.Some(set)
		p.Memory.FreedBytes = stats.Some(stats.Range{Min: freed, Max: 2 * freed})
		p.MemoryPressure = stats.Some(stats.PSIStats{HasSome: true, Some: stats.PSIData{Avg10: stalled}})
		p.Threads, p.CPU.NanoCores = stats.Some(uint64(7)), stats.Some(uint64(250_000_000))
		v.summary.Pods = append(v.summary.Pods, p)
		v.before[name] = reading{at: at.Add(-time.Second), workingSet: before}
	}
	v.summary.Time = at
	pod("cache", 900<<20, 900<<20, 100<<20, 0)
	pod("leaker-with-a-name-that-is-longer-than-most-names-are", 500<<20, 480<<20, 490<<20, 1.5)
	pod("thrasher", 64<<20, 65<<20, 60<<20, 88.8)
	v.summary.Pods = append(v.summary.Pods, stats.PodStats{PodRef: stats.PodReference{UID: "unseen"}})
	return v
}

// The table matches the golden files at each terminal width.
func TestTable(t *testing.T) {
	for _, width := range []int{80, 100, 120} {
		var out bytes.Buffer
		if err := testView().print(testView().rows(), false, terminal.Fixed(&out, width)); err != nil {
			t.Fatal(err)
		}
		nodetest.Golden(t, fmt.Sprintf("top-%d.txt", width), out.String())
	}
}

// Each sort key puts the largest pod first and unknown values last.
func TestSorts(t *testing.T) {
	for name, want := range map[string]string{"free": "leaker", "memory": "cache", "growth": "leaker", "psi": "thrasher", "cpu": "cache"} {
		v := testView()
		v.sort = sortIndex(name)
		rows := v.rows()
		if got := rows[0].Pod; len(got) < 5+len(want) || got[5:5+len(want)] != want || rows[3].UID != "unseen" {
			t.Errorf("sorted by %s: first pod %q, last UID %q; want %s first, unseen last", name, got, rows[3].UID, want)
		}
	}
}
