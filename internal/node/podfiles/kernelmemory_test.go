package podfiles

import (
	"fmt"
	"strings"
	"testing"

	"jettison/seqfile/seqtest"
)

// A pod may have a mount on the host at a path so deep that the kernel needs 64 MiB for its line, charged to the reader. The search for the
// memory of a killed pod still works, and reports an error for that mount.
func TestAMountThatIsVeryFarDownDoesNotEndTheReader(t *testing.T) {
	if thread, ok := seqtest.Inside(t); ok {
		r := Remover{Proc: thread}
		_, err := r.sharedMemoryPoints(strings.Repeat("0123456789abcdef", 4))
		fmt.Printf("said: %v\n", err)
		return
	}
	const limit = 64 << 20 // the container's in deploy/base/daemonset.yaml
	out, peak, err := seqtest.WithinProtected(t, limit, seqtest.Mounted(t))
	_, said, _ := strings.Cut(out, "said: ")
	said, _, _ = strings.Cut(said, "\n")
	if err != nil || !strings.Contains(said, "line") {
		t.Errorf("search = %v with a peak of %.1f MiB, want an error about the line; output:\n%.2000s", err, float64(peak)/(1<<20), out)
	}
	t.Logf("%.1f MiB at most: %s", float64(peak)/(1<<20), said)
}
