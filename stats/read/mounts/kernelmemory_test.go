package mounts

import (
	"fmt"
	"strings"
	"testing"

	"jettison/seqfile/seqtest"
	"jettison/stats/read/hosttest"
)

// The same among the host's own mounts, where a volume's directory can be moved below what a container has mounted of it.
func TestAHostsMountThatIsVeryFarDownDoesNotEndTheReader(t *testing.T) {
	if thread, ok := seqtest.Inside(t); ok {
		_, err := UpperDirs(thread + "/mountinfo")
		fmt.Printf("said: %v\n", err)
		return
	}
	if out, _ := hosttest.Survives(t, seqtest.WithinSpared, seqtest.Mounted(t)); !strings.Contains(out, "line") {
		t.Error(out)
	}
}
