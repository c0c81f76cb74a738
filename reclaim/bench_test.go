package reclaim

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"jettison/stats"
)

// bigLook returns a node with 10,000 dead containers in 2,000 pods, a fifth of them gone, and 1,000
// images, most of them unused.
func bigLook() *Look {
	l := &Look{Pods: map[string]Phase{}, PodsSynced: true, Records: Records{}, ImageFs: stats.Some(ImageFsSize{1 << 40, 1 << 37}), AgentStarted: ago(24 * time.Hour)}
	uid := func(pod int) string { return fmt.Sprintf("%08x-0000-0000-0000-%012d", pod*2654435761%(1<<32), pod) }
	image := func(i int) string { return fmt.Sprintf("sha256:%064x", i*7919) }
	for pod := range 2000 {
		l.Sandboxes = append(l.Sandboxes, Sandbox{ID: fmt.Sprintf("%064x", pod), PodUID: uid(pod), Namespace: "default", Name: fmt.Sprint("web-", pod), NotReady: true, CreatedAt: ago(time.Duration(pod) * time.Minute)})
		l.LogDir = append(l.LogDir, fmt.Sprintf("default_web-%d_%s", pod, uid(pod)))
		if pod%5 > 0 {
			l.Pods[uid(pod)] = Active
		}
		for c := range 5 {
			id := pod*5 + c
			l.Containers = append(l.Containers, Container{ID: fmt.Sprintf("%064x", id), SandboxID: fmt.Sprintf("%064x", pod), PodUID: uid(pod), Name: "main", Attempt: uint32(c), State: Exited,
				CreatedAt: ago(time.Duration(id*7919%100_000) * time.Second), Images: []string{image(pod % 300), "docker.io/library/web:" + fmt.Sprint(pod%300)}})
		}
	}
	for i := range 1000 {
		l.Images = append(l.Images, Image{ID: image(i), Names: []string{fmt.Sprintf("docker.io/library/web:%d", i), fmt.Sprintf("docker.io/library/web@sha256:%064x", i)}, Bytes: stats.Some(uint64(1 << 25))})
		l.Records[image(i)] = ImageRecord{FirstDetected: ago(time.Duration(i) * time.Hour)}
	}
	return l
}

func BenchmarkPlan(b *testing.B) {
	l, policy := bigLook(), DefaultPolicy()
	policy.Container.MaxContainers = 1000
	b.ReportAllocs()
	for b.Loop() {
		if p := policy.Plan(now, l); len(p.Steps) < 9000 {
			b.Fatalf("steps in the plan = %d", len(p.Steps))
		}
	}
}

// Planning a full node allocates at most 20 MB.
func TestLargePlanAllocation(t *testing.T) {
	l, policy := bigLook(), DefaultPolicy()
	policy.Container.MaxContainers = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := policy.Plan(now, l)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 20<<20 || len(p.Steps) < 9000 {
		t.Errorf("allocated %d bytes for a plan of %d steps, want at most 20 MB", n, len(p.Steps))
	}
}
