package garbage

import (
	"fmt"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/reclaim"
)

// BenchmarkPass removes 2,000 dead containers and 400 sandboxes through a fake runtime without latency. It measures the cost of the checks
// before each step.
func BenchmarkPass(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		n := newNode(b)
		known := Known{Pods: map[string]reclaim.Phase{}, Synced: true}
		for p := range 400 {
			uid := fmt.Sprintf("00000000-0000-0000-0000-%012d", p)
			known.Pods[uid] = reclaim.Evicted
			n.r.Sandboxes = append(n.r.Sandboxes, &runtimev1.PodSandbox{Id: fmt.Sprint("s", p), Metadata: &runtimev1.PodSandboxMetadata{Uid: uid}, State: runtimev1.PodSandboxState_SANDBOX_NOTREADY})
			for k := range 5 {
				n.r.Containers = append(n.r.Containers, &runtimev1.Container{Id: fmt.Sprint("c", p, "-", k), PodSandboxId: fmt.Sprint("s", p), State: exited, Labels: map[string]string{uidLabel: uid}, Metadata: &runtimev1.ContainerMetadata{Name: "main"}, CreatedAt: 1})
			}
		}
		n.known.Store(&known)
		n.now = time.Now
		b.StartTimer()
		r := n.Pass(b.Context(), Containers, reclaim.Periodic)
		if r.Count(Removed) != 2400 {
			b.Fatalf("objects removed = %d, %v, want 2400", r.Count(Removed), r.Err)
		}
		b.ReportMetric(float64(r.Took.Microseconds())/2400, "us/step")
		b.ReportMetric(float64(r.Looked.Microseconds()), "us/look")
	}
}
