package records

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/internal/base/atomicfile"

	"golang.org/x/sys/unix"

	"jettison/api"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// testRecord returns the i-th record.
func testRecord(i int, outcome api.Outcome) *api.Record {
	at := epoch.Add(time.Duration(i) * time.Second)
	r := &api.Record{Version: Version, ID: NewID(at, fmt.Sprint(i)), Pod: api.Victim{UID: fmt.Sprint(i), Namespace: "ns", Name: "pod"}, Signal: "memory.available", Outcome: outcome, Began: api.Stamp{Time: at}}
	bound(r)
	return r
}

func (j *journal) add(r *api.Record) error {
	line, err := encode(r)
	if err == nil {
		err = j.append(r.ID, line)
	}
	return err
}

func journalIn(t testing.TB, dir string, bytes int64, records int) *journal {
	j := newJournal(dir, &Options{Bytes: bytes, Records: records})
	t.Cleanup(j.close)
	return &j
}

func ids(t testing.TB, path string) (ids []string, warnings []string) {
	list, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Records {
		ids = append(ids, r.ID+" "+string(r.Outcome))
	}
	return ids, list.Warnings
}

// A record that is written again replaces its earlier version.
func TestTheLaterLineCounts(t *testing.T) {
	dir := t.TempDir()
	j := journalIn(t, filepath.Join(dir, "new"), maxBytes, maxRecords)
	for _, r := range []*api.Record{testRecord(1, api.OutcomeRunning), testRecord(2, api.OutcomeRunning), testRecord(1, api.OutcomeBack)} {
		if err := j.add(r); err != nil {
			t.Fatal(err)
		}
	}
	got, warnings := ids(t, j.path)
	if want := []string{testRecord(1, "").ID + " back", testRecord(2, "").ID + " running"}; !slices.Equal(got, want) || warnings != nil {
		t.Errorf("records = %v, warnings %v, want %v without warnings", got, warnings, want)
	}
	for path, mode := range map[string]os.FileMode{j.path: 0o600, filepath.Dir(j.path): 0o700 | os.ModeDir} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("mode of %s = %v, %v, want %v", path, info.Mode(), err, mode)
		}
	}
}

// At a limit the newest half stays, each record once. The file never exceeds its limits.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		bytes   int64
		records int
	}{{10_000, 1000}, {1 << 20, 10}} {
		j := journalIn(t, t.TempDir(), c.bytes, c.records)
		for i := range 100 {
			for _, o := range []api.Outcome{api.OutcomeRunning, api.OutcomeBack} {
				if err := j.add(testRecord(i, o)); err != nil {
					t.Fatal(err)
				}
			}
			info, err := os.Stat(j.path)
			if err != nil || info.Size() > c.bytes || info.Size() != j.size {
				t.Fatalf("size of the file = %d, %v, want %d as recorded, at most %d", info.Size(), err, j.size, c.bytes)
			}
			got, _ := ids(t, j.path)
			if len(got) > c.records || got[len(got)-1] != testRecord(i, "").ID+" back" || !slices.IsSorted(got) {
				t.Fatalf("%d records with the last %s, want at most %d with the newest last", len(got), got[len(got)-1], c.records)
			}
		}
		if got, _ := ids(t, j.path); len(got) < 4 {
			t.Errorf("records after the shrink = %d, want at least 4", len(got))
		}
		if left, _ := filepath.Glob(filepath.Dir(j.path) + "/*"); len(left) != 1 {
			t.Errorf("files in the directory = %v, want only the file of records", left)
		}
	}
}

// After a partial line of any length, the records before it and after it are read.
func TestTornLines(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		j := journalIn(t, dir, maxBytes, maxRecords)
		var want []string
		for i := range rapid.IntRange(1, 8).Draw(rt, "records") {
			if err := j.add(testRecord(i, api.OutcomeBack)); err != nil {
				rt.Fatal(err)
			}
			want = append(want, testRecord(i, "").ID+" back")
			if rapid.Bool().Draw(rt, "dies") {
				line, _ := encode(testRecord(1000+i, api.OutcomeBack))
				half := rapid.IntRange(1, len(line)-3).Draw(rt, "bytes")
				if _, err := j.file.Write(line[:half]); err != nil {
					rt.Fatal(err)
				}
				j.close()
				j = journalIn(t, dir, maxBytes, maxRecords)
				list, err := Read(j.path)
				if err != nil || !strings.Contains(fmt.Sprint(list.Warnings), "skipped the last line, which is incomplete") {
					rt.Fatalf("half a line is not said: %v %v", list, err)
				}
			}
		}
		if got, _ := ids(t, j.path); !slices.Equal(got, want) {
			rt.Fatalf("%v, want %v", got, want)
		}
	})
}

// If the disk accepts only half a line, that half is removed again. If it cannot be removed, the
// next record begins on a new line.
func TestHalfAWrite(t *testing.T) {
	for _, takenBack := range []bool{true, false} {
		j := journalIn(t, t.TempDir(), maxBytes, maxRecords)
		if err := j.add(testRecord(1, api.OutcomeBack)); err != nil {
			t.Fatal(err)
		}
		j.write = func(f *os.File, b []byte) (int, error) {
			n, _ := f.Write(b[:10])
			if !takenBack { // so that it cannot be truncated
				_ = f.Close()
			}
			return n, unix.ENOSPC
		}
		if err := j.add(testRecord(2, api.OutcomeBack)); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		j.write = (*os.File).Write
		if err := j.add(testRecord(3, api.OutcomeBack)); err != nil {
			t.Fatal(err)
		}
		got, warnings := ids(t, j.path)
		if want := []string{testRecord(1, "").ID + " back", testRecord(3, "").ID + " back"}; !slices.Equal(got, want) || (warnings == nil) != takenBack {
			t.Errorf("records = %v, warnings %v, want %v and warnings: %v", got, warnings, want, !takenBack)
		}
	}
}

// A file that was moved away is not written to any more.
func TestAMovedFile(t *testing.T) {
	j := journalIn(t, t.TempDir(), maxBytes, maxRecords)
	for i := range 2 {
		if err := j.add(testRecord(i, api.OutcomeBack)); err != nil {
			t.Fatal(err)
		}
		if got, _ := ids(t, j.path); len(got) != 1 {
			t.Fatal(got)
		}
		if err := os.Rename(j.path, j.path+fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// Only a regular file is written and read: no link is followed, and no file blocks.
func TestOnlyRegularFiles(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"a symbolic link":    func(p string) error { return os.Symlink("/etc/passwd", p) },
		"directory":          func(p string) error { return os.Mkdir(p, 0o700) },
		"not a regular file": func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		dir := t.TempDir()
		j := journalIn(t, dir, maxBytes, maxRecords)
		if err := make(j.path); err != nil {
			t.Fatal(err)
		}
		if err := j.add(testRecord(1, api.OutcomeBack)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("write: %v, want %s", err, name)
		}
		if _, err := Read(j.path); err == nil {
			t.Errorf("Read of %s succeeded, want an error", name)
		}
		// A temporary file of another process is removed, not written to.
		target := filepath.Join(dir, "target")
		if err := os.WriteFile(target, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		state := filepath.Join(dir, StateFile)
		if err := os.Symlink(target, state+".tmp"); err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.Replace(state, func(f *os.File) error { _, err := f.WriteString("state"); return err }); err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(target); string(text) != "x" {
			t.Errorf("a link was followed: %q", text)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), File)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// The end of a file that is too large is read, in bounded memory.
func TestAHugeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	line, _ := encode(testRecord(7, api.OutcomeBack))
	if err = f.Truncate(1 << 40); err == nil { // a hole
		_, err = f.WriteAt(append([]byte("\n"), line...), 1<<40)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	got, warnings := ids(t, path)
	if len(got) != 1 || strings.Join(warnings, "; ") != "the file is larger than the limit, only its end was read" {
		t.Errorf("records = %v, warnings %v, want one record and a warning about the size", got, warnings)
	}
	j := journalIn(t, filepath.Dir(path), maxBytes, maxRecords)
	if err := j.add(testRecord(8, api.OutcomeBack)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 10_000 {
		t.Errorf("%d bytes after the next record, %v", info.Size(), err)
	}
	if got, warnings := ids(t, path); len(got) != 2 || warnings != nil {
		t.Errorf("records = %v, warnings %v, want two records without warnings", got, warnings)
	}
}

// Lines that are no records are counted. Records beyond the limit are dropped.
func TestCorruptLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	text := strings.Join([]string{`{}`, `x`, ``, `{"version":1,"id":"a b"}`, `{"version":0,"id":"a"}`, strings.Repeat("y", maxLine+5), `{"version":2,"id":"later","new":{}}`, `{"version":1,"id":"fine","pod":{"name":"a\u001b[31m\nb"}}`}, "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := Read(path)
	if err != nil || len(list.Records) != 2 || list.Records[1].Pod.Name != "a?[31m?b" {
		t.Fatalf("list = %+v, %v, want two records with a printable name", list, err)
	}
	if got := strings.Join(list.Warnings, "; "); got != "skipped 5 corrupt lines; 1 records were written by a later version of jettison: unknown fields are not shown" {
		t.Error(got)
	}
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "{\"version\":1,\"id\":\"%d\"}\n", i)
	}
	if list, err = parse(strings.NewReader(b.String()), false); err != nil || len(list.Records) != maxRecords || list.Records[maxRecords-1].ID != "4999" {
		t.Errorf("number of records = %d, %v, want the newest %d", len(list.Records), err, maxRecords)
	}
}

// With any file: no panic, all limits apply, the output has no control characters for a terminal,
// and records that were read can be written and read again.
func FuzzRecords(f *testing.F) {
	line, _ := encode(testRecord(1, api.OutcomeBack))
	f.Add(line, false)
	f.Add(append(line, line[:20]...), true)
	f.Add([]byte("{\"version\":1,\"id\":\"x\",\"crossed\":{\"available\":1},\"steps\":[{},{}],\"ranking\":{\"rows\":[{}],\"more\":-1},\"killed\":{\"monotonicNs\":-5}}\n"), false)
	f.Add([]byte("\n\n{}\x00\n"), true)
	f.Fuzz(func(t *testing.T, text []byte, cut bool) {
		list, err := parse(strings.NewReader(string(text)), cut)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Records {
			r := &list.Records[i]
			if len(r.Steps) > maxSteps || len(r.Ranking.Rows) > maxRows || strings.ContainsAny(r.Pod.Name+r.Reason+r.Message+r.Error, "\n\x1b\r\u009b") {
				t.Errorf("bounded record = %+v, want cut lists and printable texts", r)
			}
			if k := kmsgLine(r); len(k) > maxKmsg || strings.Count(string(k), "\n") != 1 {
				t.Errorf("kernel log line = %q, want one line of at most %d bytes", k, maxKmsg)
			}
			again, err := encode(r)
			if err != nil || len(again) > maxLine {
				t.Fatalf("size of the encoded record = %d, %v, want at most %d", len(again), err, maxLine)
			}
			if l, err := parse(strings.NewReader(string(again)), false); err != nil || len(l.Records) != 1 || l.Warnings != nil && r.Version == Version {
				t.Errorf("what it wrote it does not read: %s: %v, %v", again, l, err)
			}
		}
	})
}

// The largest possible record is one line that can be read again.
func TestTheLargestRecord(t *testing.T) {
	r := testRecord(1, api.OutcomeBack)
	long := strings.Repeat(`"`, 100_000)
	r.Reason, r.Message, r.Error, r.Pod.Cgroup, r.Pod.Name = long, long, long, long, long
	r.Crossed = &api.Reading{Reason: long, Text: long}
	r.Decided, r.After = r.Crossed, r.Crossed
	for range 1000 {
		r.Steps = append(r.Steps, api.Step{Name: long, Error: long, N: -1 << 62, Monotonic: 1 << 62})
		r.Ranking.Rows = append(r.Ranking.Rows, api.Candidate{Pod: long, UID: long, QOSClass: "x", DecidedBy: long, Keys: long})
		r.Pod.SandboxIDs = append(r.Pod.SandboxIDs, long)
	}
	bound(r)
	line, err := encode(r)
	if err != nil || len(line) > maxLine {
		t.Fatalf("size of the largest record = %d, %v, want at most %d", len(line), err, maxLine)
	}
	if list, err := parse(strings.NewReader(string(line)), false); err != nil || len(list.Records) != 1 || len(list.Records[0].Steps) != maxSteps {
		t.Errorf("parsed list = %v, %v, want one record with %d steps", list, err, maxSteps)
	}
}

// A failing reader is an error, not the end of the file.
func TestAReaderThatFails(t *testing.T) {
	if _, err := parse(io.MultiReader(strings.NewReader("{}\n"), failing{}), false); !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, unix.EIO }
