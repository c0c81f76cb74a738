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

// recording returns a Recording to a new file, and its log.
func recording(t *testing.T) (r *Recording, path string, log *bytes.Buffer) {
	t.Helper()
	path, log = filepath.Join(t.TempDir(), "frames"), new(bytes.Buffer)
	r, err := StartRecording(path, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return r, path, log
}

// A frame of an older look starts no new file: the number of files is small, and the oldest one
// would be lost.
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
		t.Errorf("files of the recording = %v, error %v\n%s", files, err, log)
	}
	all := readFile(t, path)
	if len(all) != 4 {
		t.Fatalf("number of recorded frames = %d", len(all))
	}
	for i, f := range all {
		if !f.At().Equal(epoch) {
			t.Errorf("time of frame %d = %v, want %v", i, f.At(), epoch)
		}
	}
}

// A pod that did not die is in the next frame only. Each frame has the node's name.
func TestKillErrors(t *testing.T) {
	r, path, _ := recording(t)
	r.Record(small(epoch), false)
	r.AddKillError("a", "it waits for a disk")
	r.AddKillError("b", "no permission")
	r.Record(small(epoch.Add(time.Second)), true)
	r.Record(small(epoch.Add(2*time.Second)), false)
	if err := r.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{nil, {"a": "it waits for a disk", "b": "no permission"}, nil}
	host, _ := os.Hostname()
	all := readFile(t, path)
	if len(all) != len(want) {
		t.Fatalf("number of recorded frames = %d", len(all))
	}
	for i, f := range all {
		if !maps.Equal(f.KillErrors, want[i]) || f.Summary.Node.NodeName != host {
			t.Errorf("frame %d: kill errors %v, node %q; want %v, %q", i, f.KillErrors, f.Summary.Node.NodeName, want[i], host)
		}
	}
}

// A threshold is newly met at the first look that meets it, and again after a look that does not.
func TestNewlyMet(t *testing.T) {
	thresholds := policy(t, `
evictionHard: {memory.available: 100Mi, nodefs.available: 10%}
evictionSoft: {memory.available: 200Mi}
evictionSoftGracePeriod: {memory.available: 1m}
`).Thresholds
	if len(thresholds) < 3 {
		t.Fatalf("number of parsed thresholds: %v", thresholds)
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
			t.Errorf("NewlyMet at look %d = %v, want %v", i, got, c.want)
		}
	}
	if err := r.Close(time.Minute); err != nil {
		t.Errorf("close the recording failed: %v", err)
	}
	if none := (*Recording)(nil); none.NewlyMet(met(0)) {
		t.Error("NewlyMet of a nil Recording = true")
	}
}

// Without a path nothing is recorded, and all methods work. A path that cannot be written is an
// error at the start or a line in the log.
func TestNoRecording(t *testing.T) {
	r, err := StartRecording("", slog.New(slog.DiscardHandler))
	if err != nil || r.On() {
		t.Fatalf("recording without a path: error %v, On %v", err, r.On())
	}
	r.Record(small(epoch), false)
	r.AddKillError("a", "why")
	if err := r.Close(0); err != nil {
		t.Errorf("close a nil Recording: %v", err)
	}
	r, path, log := recording(t)
	if !r.On() {
		t.Error("recording with a path is not on")
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	r.Record(small(epoch), false)
	if err := r.Close(time.Minute); err != nil {
		t.Errorf("close the recording failed: %v", err)
	}
	if !strings.Contains(log.String(), "frames dropped") {
		t.Errorf("log of an unwritable file = %q", log)
	}
}
