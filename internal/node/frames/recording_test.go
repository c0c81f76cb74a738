package frames

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/eviction"
)

// recording is one to a file of its own, and what it logs.
func recording(t *testing.T) (r *Recording, path string, log *bytes.Buffer) {
	t.Helper()
	path, log = filepath.Join(t.TempDir(), "frames"), new(bytes.Buffer)
	r, err := StartRecording(path, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return r, path, log
}

// A frame that follows from an older look begins no new file: there are few of them, and what is in the oldest would be lost.
func TestFramesAreInOrder(t *testing.T) {
	r, path, log := recording(t)
	for i := range 4 {
		r.Record(small(epoch.Add(time.Duration(-i)*time.Millisecond)), false)
	}
	if err := r.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v\n%s", files, err, log)
	}
	all := readFile(t, path)
	if len(all) != 4 {
		t.Fatalf("%d frames", len(all))
	}
	for i, f := range all {
		if !f.At().Equal(epoch) {
			t.Errorf("frame %d is of %v, want %v", i, f.At(), epoch)
		}
	}
}

// A pod that did not die is in the next frame, and in that one only; each names the node.
func TestARecordingSaysWhoDidNotDie(t *testing.T) {
	r, path, _ := recording(t)
	r.Record(small(epoch), false)
	r.NotKilled("a", "it waits for a disk")
	r.NotKilled("b", "no permission")
	r.Record(small(epoch.Add(time.Second)), true)
	r.Record(small(epoch.Add(2*time.Second)), false)
	if err := r.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{nil, {"a": "it waits for a disk", "b": "no permission"}, nil}
	host, _ := os.Hostname()
	all := readFile(t, path)
	if len(all) != len(want) {
		t.Fatalf("%d frames", len(all))
	}
	for i, f := range all {
		if !maps.Equal(f.KillErrors, want[i]) || f.Summary.Node.NodeName != host {
			t.Errorf("frame %d: %v, node %q; want %v, %q", i, f.KillErrors, f.Summary.Node.NodeName, want[i], host)
		}
	}
}

// A threshold is newly met at the first look at which it is, and again after one at which it was not.
func TestNewlyMet(t *testing.T) {
	thresholds := policy(t, `
evictionHard: {memory.available: 100Mi, nodefs.available: 10%}
evictionSoft: {memory.available: 200Mi}
evictionSoftGracePeriod: {memory.available: 1m}
`).Thresholds
	if len(thresholds) < 3 {
		t.Fatal(thresholds)
	}
	met := func(which ...int) (out []eviction.Met) {
		for _, i := range which {
			out = append(out, eviction.Met{Threshold: thresholds[i]})
		}
		return out
	}
	r, _, _ := recording(t)
	for i, c := range []struct {
		met  []eviction.Met
		want bool
	}{{met(), false}, {met(0), true}, {met(0), false}, {met(1, 0), true}, {met(0, 1), false}, {met(2), true}, {met(), false}, {met(0), true}} {
		if got := r.NewlyMet(c.met); got != c.want {
			t.Errorf("look %d: %v, want %v", i, got, c.want)
		}
	}
	if err := r.Close(time.Minute); err != nil {
		t.Error(err)
	}
	if none := (*Recording)(nil); none.NewlyMet(met(0)) {
		t.Error("without a recording no moment is worth a frame")
	}
}

// Without a path nothing is recorded, and all that is asked for is fine. A path that cannot be written is an error at once or a line in the
// log.
func TestNoRecording(t *testing.T) {
	r, err := StartRecording("", slog.New(slog.DiscardHandler))
	if err != nil || r.On() {
		t.Fatalf("%v, on %v", err, r.On())
	}
	r.Record(small(epoch), false)
	r.NotKilled("a", "why")
	if err := r.Close(0); err != nil {
		t.Error(err)
	}
	r, path, log := recording(t)
	if !r.On() {
		t.Error("it does not record")
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	r.Record(small(epoch), false)
	if err := r.Close(time.Minute); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "frames are lost") {
		t.Errorf("logged %q", log)
	}
}
