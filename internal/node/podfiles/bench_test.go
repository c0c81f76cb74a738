package podfiles

import (
	"fmt"
	"os"
	"testing"
)

// BenchmarkVolumes removes an emptyDir of 5,000 files in 50 directories.
func BenchmarkVolumes(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		box := newBox(b, b.TempDir())
		for i := range 5000 {
			dir := fmt.Sprintf("%s/%d", box.volume, i%50)
			must(b, os.MkdirAll(dir, 0o755), os.WriteFile(fmt.Sprintf("%s/%d", dir, i), []byte("x"), 0o644))
		}
		b.StartTimer()
		got, err := box.Volumes(b.Context(), ref.UID, nil)
		if err != nil || got.Entries < 5050 {
			b.Fatal(got, err)
		}
	}
	b.ReportMetric(5050*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}
