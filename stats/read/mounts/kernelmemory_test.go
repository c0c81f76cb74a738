package mounts

import (
	"fmt"
	"strings"
	"testing"

	"jettison/seqfile/seqtest"
	"jettison/stats/read/hosttest"
)

// A very deep mount among the host's own does not end the reader: a volume's directory can be
// moved below a directory that a container has mounted.
func TestAHostsMountThatIsVeryFarDownDoesNotEndTheReader(t *testing.T) {
	if thread, ok := seqtest.Inside(t); ok {
		_, err := UpperDirs(thread + "/mountinfo")
		fmt.Printf("said: %v\n", err)
		return
	}
	if out, _ := hosttest.Survives(t, seqtest.WithinProtected, seqtest.Mounted(t)); !strings.Contains(out, "line") {
		t.Error("reader did not report an incomplete mountinfo: ", out)
	}
}
