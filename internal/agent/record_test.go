package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A frame that follows from an older look begins no new file: there are few of them, and what is in the oldest would be lost.
func TestFramesAreInOrder(t *testing.T) {
	n := newTestNode(t)
	n.a.o.Config.Record = filepath.Join(t.TempDir(), "frames")
	stop, err := n.a.startRecord()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 4 {
		n.a.record(now.Add(time.Duration(-i)*time.Millisecond), fullLook, false)
	}
	stop()
	files, err := os.ReadDir(filepath.Dir(n.a.o.Config.Record))
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v\n%s", files, err, n.log)
	}
}
