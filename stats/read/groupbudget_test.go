package read

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

// A tenant's thousands of cgroups with long names, siblings in one container and some in each
// of the other pods' containers, cost a look a bounded time and memory over all pods. Their
// processes are then not counted, which is reported once, and no other figure of any pod is
// affected.
func TestNestedCgroupsCostALookLittle(t *testing.T) {
	const pods, wide, each = 12, 4_000, 100
	c, _, dir := recordedNode(t, "6.12")
	known, err := filepath.Glob(filepath.Join(dir, "cgroup/kubepods/burstable/pod*"))
	if err != nil || len(known) != 1 {
		t.Fatal(known, err)
	}
	make := func(path string) {
		if err := errors.Join(os.MkdirAll(path, 0o755), os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte("1\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range pods {
		pod := fmt.Sprintf("%s/cgroup/kubepods/pod12345678-1234-1234-1234-%012d", dir, i)
		if err := os.CopyFS(pod, os.DirFS(known[0])); err != nil {
			t.Fatal(err)
		}
		make(pod + "/0123")
		for n := range each {
			make(fmt.Sprintf("%s/0123/%d", pod, n))
		}
	}
	container := filepath.Join(known[0], "0123")
	make(container)
	name := strings.Repeat("n", 200)
	for i := range wide {
		if err := os.Mkdir(fmt.Sprintf("%s/%s%d", container, name, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var s stats.Summary
	_ = c.Collect(time.Unix(1000, 0), nil, &s) // fill the state that is kept between looks
	best, least := time.Hour, uint64(1)<<62
	for i := range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		err = c.Collect(time.Unix(1001+int64(i), 0), nil, &s)
		best = min(best, time.Since(start))
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	t.Logf("a look takes %v and %d KiB", best, least>>10)
	if least > 512<<10 { // more than a MiB without the bound
		t.Errorf("a look takes %v and %d KiB, want at most 512 KiB", best, least>>10)
	}
	if !errors.Is(err, errManyCgroups) || strings.Count(err.Error(), errManyCgroups.Error()) != 1 || len(err.Error()) > 1000 {
		t.Errorf("error of the look = %.2000v", err)
	}
	without := 0
	for _, p := range s.Pods {
		if !p.Memory.WorkingSetBytes.OK || !p.Threads.OK || !p.CPU.Usage.OK {
			t.Errorf("pod with a figure missing: %+v", p)
		}
		if !p.Processes.OK {
			without++
		}
	}
	if without == 0 || without > pods+1 {
		t.Errorf("processes of %d pods are not counted", without)
	}
}

// The time is bounded too, and any number of skipped groups is reported in one line.
func TestABudgetOfGroups(t *testing.T) {
	late := groupBudget{left: maxBelow, until: time.Now().Add(-time.Second)}
	if late.take() || late.left != 0 {
		t.Errorf("budget after its time = %+v", late)
	}
	b := newGroupBudget()
	b.until = time.Now().Add(time.Hour)
	n := 0
	for b.take() {
		n++
	}
	if n != maxBelow || b.err() != nil {
		t.Errorf("budget allowed %d groups, error %v", n, b.err())
	}
	for i := range 100 {
		b.exceed("a\nb" + strings.Repeat("x", i+300))
	}
	if err := b.err(); !errors.Is(err, errManyCgroups) || !strings.Contains(err.Error(), "and 99 others") || len(err.Error()) > 400 {
		t.Error(err)
	} else if strings.Contains(err.Error(), "\n") {
		t.Errorf("name of a cgroup breaks the line: %v", err)
	}
}
