package gc

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/gc/gcfiles"
)

// BenchmarkFromFiles plans for a node with 10,000 dead containers in 2,000 pods, a fifth of them gone, and 1,000 images. The files are as
// long as those of crictl.
func BenchmarkFromFiles(b *testing.B) {
	dir, f := b.TempDir(), &gcDir{gc: object{"now": "2026-01-02T00:00:00Z", "podsSynced": true, "trigger": "diskPressure", "images": object{}}}
	uid := func(pod int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", pod) }
	var pods []object
	for pod := range 2000 {
		if pod%5 > 0 {
			pods = append(pods, object{"uid": uid(pod), "phase": "Active"})
		}
		f.sandboxes = append(f.sandboxes, object{"id": fmt.Sprintf("%064d", pod), "metadata": object{"name": "web", "namespace": "default", "uid": uid(pod)}, "state": "SANDBOX_NOTREADY", "createdAt": "1767225600000000000"})
		for c := range 5 {
			f.containers = append(f.containers, object{"id": fmt.Sprintf("%064d", pod*5+c), "podSandboxId": fmt.Sprintf("%064d", pod), "metadata": object{"name": "main", "attempt": c}, "state": "CONTAINER_EXITED",
				"imageId": fmt.Sprintf("sha256:%064d", pod%300), "createdAt": fmt.Sprint(1767225600000000000 + int64(c)), "labels": object{"io.kubernetes.pod.uid": uid(pod)}, "annotations": object{"a": strings.Repeat("x", 800)}})
		}
	}
	for i := range 1000 {
		id := fmt.Sprintf("sha256:%064d", i)
		f.images = append(f.images, object{"id": id, "size": "1000000"})
		child(f.gc, "images")[id] = object{"firstDetected": "2026-01-01T00:00:00Z"}
	}
	f.gc["pods"] = pods
	f.write(b, dir)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := gcfiles.Read(dir); err != nil {
				b.Fatal(err)
			}
		}
	})
	node, err := gcfiles.Read(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("plan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if p := node.Plan(); len(p.Steps) < 9000 {
				b.Fatalf("plan has %d steps, want at least 9000", len(p.Steps))
			}
		}
	})
	b.Run("print", func(b *testing.B) {
		for b.Loop() {
			if err := fromFiles(dir, output.AsTable, terminal.Fixed(io.Discard, 0)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
