package frames

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"jettison/internal/base/strict"
	"jettison/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notices collects the notices of a recorder.
type notices struct {
	mu  sync.Mutex
	all []Notice
}

func (n *notices) add(what Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, what)
}

// recorder returns a Recorder with a queue for all frames of a test, and adjustable bounds.
func recorder(t *testing.T, path string, change func(*bounds)) (*Recorder, *notices) {
	t.Helper()
	said, b := &notices{}, defaultBounds
	b.queue = 1000
	if change != nil {
		change(&b)
	}
	r, err := boundedRecorder(path, b, said.add)
	if err != nil {
		t.Fatal(err)
	}
	return r, said
}

func closed(t *testing.T, r *Recorder) {
	t.Helper()
	if err := r.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// small returns a look at a node with one pod.
func small(at time.Time, objects ...*v1.Pod) Input {
	s := node110(at, 1)
	return Input{Time: at, Summary: s, Pods: objects}
}

func readFile(t *testing.T, path string) []*Frame {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, b)
}

// Objects are written if they changed, and at the start of each file. An existing file is rotated.
func TestRecorderFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "frames.gz")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := objects110(node110(epoch, 2))
	r, said := recorder(t, path, func(b *bounds) { b.fileAge, b.files = time.Minute, 3 })
	for i := range 14 { // 0..70 s: a new file after a minute, with objects
		given := objects
		if i >= 3 {
			given = objects[:1]
		}
		r.Record(FromLook(small(epoch.Add(time.Duration(i)*5*time.Second), given...)), false)
	}
	closed(t, r)
	r.Record(FromLook(small(epoch)), false) // after Close: nothing
	if len(said.all) > 0 {
		t.Errorf("notices of the recorder = %+v, want none", said.all)
	}
	var with []string
	for _, name := range []string{path + ".1", path} {
		for i, f := range readFile(t, name) {
			if f.Pods != nil {
				with = append(with, fmt.Sprintf("%s:%d:%d", strings.TrimPrefix(name, path), i, len(f.Pods)))
			}
		}
	}
	if fmt.Sprint(with) != "[.1:0:2 .1:3:1 :0:1]" {
		t.Errorf("times of frames with objects = %v", with)
	}
	if b, _ := os.ReadFile(path + ".2"); string(b) != "before" {
		t.Errorf("content of the previous file = %q", b)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file = %v, want 0600", info.Mode())
	}
}

// Files never exceed their maximum size and number.
func TestRecorderSize(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "frames.gz")
	r, _ := recorder(t, path, func(b *bounds) { b.fileBytes, b.files = 4000, 3 })
	for i := range 60 {
		r.Record(FromLook(small(epoch.Add(time.Duration(i)*10*time.Second))), false)
	}
	closed(t, r)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Fatalf("files of the recorder = %v, error %v", entries, err)
	}
	last := time.Time{}
	for _, name := range []string{path + ".2", path + ".1", path} {
		if info, _ := os.Stat(name); info.Size() > 4000 {
			t.Errorf("size of %s = %d bytes, want at most the limit", name, info.Size())
		}
		for _, f := range readFile(t, name) {
			if !f.At().After(last) {
				t.Errorf("time in %s = %v after %v, want increasing times", name, f.At(), last)
			}
			last = f.At()
		}
	}
	if !last.Equal(epoch.Add(590 * time.Second)) {
		t.Errorf("time of the last frame = %v", last)
	}
}

// Extra frames use at most half of a minute's budget, and all frames never more than the budget.
// Dropped frames are counted.
func TestRecorderBudget(t *testing.T) {
	const perMinute = 40_000
	path := filepath.Join(t.TempDir(), "frames.gz")
	r, said := recorder(t, path, func(b *bounds) { b.perMinute = perMinute })
	closed(t, r) // its goroutine is not needed: the frames are taken here, one by one
	regular := 0
	for i := range 1200 { // two minutes, an event each tenth of a second
		at := epoch.Add(time.Duration(i) * 100 * time.Millisecond)
		if i%100 == 0 {
			r.take(queued{FromLook(small(at)), false})
			regular++
		}
		r.take(queued{FromLook(small(at)), true})
	}
	r.segment.close()
	frames := readFile(t, path)
	info, _ := os.Stat(path)
	each := info.Size() / int64(len(frames))
	if total := info.Size(); total > 2*perMinute+each || total < perMinute/2 {
		t.Errorf("bytes in two minutes = %d, want at most the budget", total)
	}
	seconds := map[int64]bool{}
	for _, f := range frames {
		if f.At().Sub(epoch)%(10*time.Second) == 0 {
			seconds[f.At().Unix()] = true
		}
	}
	if len(seconds) != regular {
		t.Errorf("regular frames recorded = %d of %d", len(seconds), regular)
	}
	if len(said.all) == 0 || !errors.Is(said.all[0].Err, ErrBudget) || len(said.all) > 6 {
		t.Errorf("notices of the recorder = %+v", said.all)
	}
}

// A file that cannot be written is reported once, and written as soon as possible.
func TestRecorderErrors(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(path string) (undo func()){
		"no directory": func(path string) func() {
			return func() { _ = os.Mkdir(filepath.Dir(path), 0o700) }
		},
		"a file for a directory": func(path string) func() {
			_ = os.WriteFile(filepath.Dir(path), nil, 0o600)
			return func() { _ = os.Remove(filepath.Dir(path)); _ = os.Mkdir(filepath.Dir(path), 0o700) }
		},
		"a directory for a file": func(path string) func() {
			_ = os.MkdirAll(path, 0o700)
			return func() { _ = os.Remove(path) }
		},
		"a link for a file": func(path string) func() {
			_ = os.Mkdir(filepath.Dir(path), 0o700)
			_ = os.Symlink("/dev/null", path)
			return func() { _ = os.Remove(path) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"), "frames.gz")
			undo := make(path)
			r, said := recorder(t, path, nil)
			closed(t, r) // its goroutine is not needed: the frames are taken here, one by one
			for i := range 3 {
				r.take(queued{FromLook(small(epoch.Add(time.Duration(i) * time.Second))), false})
			}
			undo()
			r.take(queued{FromLook(small(epoch.Add(time.Minute))), false})
			r.segment.close()
			if len(said.all) != 2 || said.all[0].Err == nil || said.all[1] != (Notice{Lost: 3}) {
				t.Errorf("notices of the recorder = %+v", said.all)
			}
			if frames := readFile(t, path); len(frames) != 1 || frames[0].Pods == nil {
				t.Errorf("number of recorded frames = %d", len(frames))
			}
		})
	}
}

// A file that others move or remove is replaced by a new one; so is a file that cannot be written
// any more, or that is newer than a clock that was set back.
func TestRecorderStartsNewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "frames.gz")
	r, _ := recorder(t, path, func(b *bounds) { b.files = 9 })
	closed(t, r)
	at := epoch
	take := func() { at = at.Add(time.Second); r.take(queued{FromLook(small(at)), false}) }
	take()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	take()
	if frames := readFile(t, path); len(frames) != 1 || frames[0].Pods == nil {
		t.Error("the recorder still writes to the removed file")
	}
	_ = r.segment.file.Close()
	readOnly, err := os.Open(path) // as if the disk had become so
	if err != nil {
		t.Fatal(err)
	}
	r.segment.file = readOnly
	take() // lost
	take()
	if frames := readFile(t, path); len(frames) != 1 || !frames[0].At().Equal(at) || len(readFile(t, path+".1")) != 1 {
		t.Error("the recorder still writes to the unwritable file")
	}
	at = at.Add(-time.Hour)
	take()
	if frames := readFile(t, path); len(frames) != 1 || len(readFile(t, path+".1")) != 1 {
		t.Error("times decrease within one file")
	}
	r.segment.close()
}

// A disk that hangs blocks no caller: frames are dropped and counted, and Close times out.
func TestRecorderNeverBlocks(t *testing.T) {
	hang, hangs, said := make(chan struct{}), make(chan struct{}, 1), make(chan Notice, 10)
	few := defaultBounds
	few.queue = 2
	r, err := boundedRecorder(filepath.Join(t.TempDir(), "no", "frames.gz"), few, func(n Notice) {
		if errors.Is(n.Err, ErrBehind) || n.Err == nil {
			said <- n
			return
		}
		hangs <- struct{}{}
		<-hang
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Record(FromLook(small(epoch)), false)
	<-hangs // the directory does not exist, and the report of that error hangs
	for i := range 10 {
		r.Record(FromLook(small(epoch.Add(time.Duration(i)*time.Second))), false)
	}
	if n := <-said; !errors.Is(n.Err, ErrBehind) || n.Lost != 1 {
		t.Errorf("first notice of the recorder = %+v", n)
	}
	if err := r.Close(time.Millisecond); err == nil {
		t.Error("Close waited for the disk that hangs")
	}
	close(hang)
	closed(t, r)
	if n := <-said; n != (Notice{Lost: 8}) {
		t.Errorf("last notice of the recorder = %+v", n)
	}
}

// A process that dies within a frame leaves the frames before it intact. The reader reports the
// position of the truncation.
func TestTruncatedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "frames.gz")
	r, _ := recorder(t, path, nil)
	for i := range 3 {
		r.Record(FromLook(small(epoch.Add(time.Duration(i)*time.Second))), false)
	}
	closed(t, r)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole) - 1; cut > len(whole)/2; cut -= 7 {
		reader, err := NewReader(bytes.NewReader(whole[:cut]), "cut")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			if _, err = reader.Next(); err != nil {
				break
			}
			n++
		}
		var fault *strict.FieldError
		if n == 2 && err == io.EOF { // between two frames
			continue
		}
		if n < 1 || !errors.As(err, &fault) || fault.Line != n+1 || !strings.Contains(fault.Err.Error(), "truncated") {
			t.Fatalf("file truncated at %d of %d: %d frames, then error %v", cut, len(whole), n, err)
		}
	}
}

// Two minutes of a node with 110 pods of two containers and the maximum number of events stay
// within the budget of 2 MB per minute, and the regular frames use a tenth of it.
func TestRecorderBudgetWith110Pods(t *testing.T) {
	r, _ := recorder(t, filepath.Join(t.TempDir(), "frames.gz"), nil)
	closed(t, r)
	objects := objects110(node110(epoch, 110))
	minute, regular := int64(0), int64(0)
	for i := range 60 {
		at := epoch.Add(time.Duration(i) * time.Second)
		before := r.segment.size
		l := Input{Time: at, Summary: node110(at, 110), Pods: objects}
		r.take(queued{FromLook(l), i%10 != 0})
		minute += r.segment.size - before
		if i%10 == 0 {
			regular += r.segment.size - before
		}
	}
	r.segment.close()
	if minute > 2_000_000 || regular > 300_000 {
		t.Errorf("bytes per minute = %d, regular frames %d, want at most the budget", minute, regular)
	}
	t.Logf("bytes per minute = %d, regular frames %d", minute, regular)
}

// A frame contains all data for decisions, but no secrets of pods.
func TestStrippedObjects(t *testing.T) {
	s := node110(epoch, 1)
	objects := objects110(s)
	objects[0].Annotations = map[string]string{"kubernetes.io/config.source": "api", "jettison/priority": "5", "other": "secret"}
	text := string(line(t, FromLook(Input{Time: epoch, Summary: s, Pods: objects})))
	for _, want := range []string{"kubernetes.io/config.source", "jettison/priority", `"memory":"100Mi"`} {
		if strings.Count(text, want) != 1 {
			t.Errorf("frame does not contain %s: %s", want, text)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "PASSWORD") {
		t.Errorf("frame contains more than the decisions need: %s", text)
	}
}

// A frame keeps no reference to its look, which the next look overwrites.
func TestAFrameIsACopy(t *testing.T) {
	s := node110(epoch, 2)
	s.Pods[0].Annotations = map[string]string{"jettison/priority": "5"}
	s.Pods[0].EphemeralStorage.Volumes[0].Memory = true
	s.Sources = []stats.SourceStatus{{Name: "statfs", Err: errors.New("hangs")}}
	l := Input{Time: epoch, Summary: s, KillErrors: map[string]string{"a": "b"}}
	before, f := line(t, FromLook(l)), FromLook(l)
	*s = *node110(epoch.Add(time.Hour), 2)
	l.KillErrors["a"] = "c"
	if after := line(t, f); !bytes.Equal(before, after) {
		t.Errorf("frame changed with its look: before %s, after %s", before, after)
	}
}
