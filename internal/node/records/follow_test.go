package records

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"jettison/api"
	"jettison/internal/base/atomicfile"
)

// readLines returns the lines that a reader gets, in short form.
func readLines(t *testing.T, q *Queue, after string) (out []string, at Position) {
	t.Helper()
	at, err := q.Read(after, func(l *api.RecordsLine) error {
		if g := l.Gap; g != nil {
			out = append(out, fmt.Sprintf("gap %s..%s: %s", g.After, g.Until, g.Reason))
			return nil
		}
		out = append(out, l.Record.ID+" "+string(l.Record.Outcome))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, at
}

// A reader gets the records of the file and then those in memory, the current version of each once, after its position.
func TestAReaderGetsAllThatAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper(t, t.TempDir(), false)
		const n = recentSize + 8
		for i := range n {
			r := &api.Record{ID: fmt.Sprintf("a%03d", i), Outcome: api.OutcomeRunning}
			k.Begin(r)
			if i%2 == 0 {
				r.Outcome = api.OutcomeBack
				k.Update(r)
			}
		}
		synctest.Wait() // until everything is written
		for after, first := range map[string]int{"": 0, "a": 0, "a003": 4, "a00": 0, "a02": 20, "a039": n, "b": n} {
			got, _ := readLines(t, k.queue, after)
			var want []string
			for i := first; i < n; i++ {
				want = append(want, fmt.Sprintf("a%03d %s", i, string(map[bool]api.Outcome{true: api.OutcomeBack, false: api.OutcomeRunning}[i%2 == 0])))
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %q:\n%q\nwant\n%q", after, got, want)
			}
		}
	})
}

// A follower gets each new and changed record in order; one that missed some is notified.
func TestAFollowerGetsWhatChanges(t *testing.T) {
	k := keeper(t, "", false)
	a, b := &api.Record{ID: "a", Outcome: api.OutcomeRunning}, &api.Record{ID: "b", Outcome: api.OutcomeRunning}
	k.Begin(a)
	got, at := readLines(t, k.queue, "")
	if !slices.Equal(got, []string{"a running"}) {
		t.Fatalf("first records = %q, want [a running]", got)
	}
	select {
	case <-at.More:
		t.Fatal("there is nothing new")
	default:
	}
	k.Begin(b)
	<-at.More
	a.Outcome = api.OutcomeBack
	k.Update(a)
	changed, at, ok := k.queue.Next(at)
	if !ok || len(changed) != 2 || changed[0].ID != "b" || changed[1].Outcome != api.OutcomeBack {
		t.Errorf("Next = %+v, %v, want records b and a", changed, ok)
	}
	if changed, at, ok = k.queue.Next(at); !ok || len(changed) != 0 {
		t.Errorf("second Next = %+v, %v, want no records", changed, ok)
	}
	for i := range recentSize + 1 {
		k.Begin(&api.Record{ID: fmt.Sprintf("c%03d", i)})
	}
	if _, _, ok = k.queue.Next(at); ok {
		t.Error("one that was not at hand any more was missed, and nothing said so")
	}
	if got, _ := readLines(t, k.queue, ""); !strings.HasPrefix(got[0], "gap ..c000: no stateDir") || len(got) != recentSize+1 {
		t.Errorf("lines without a file = %q, want a gap and %d records", got, recentSize)
	}
	if got, _ := readLines(t, k.queue, "c000"); len(got) != recentSize || got[0] != "c001 " {
		t.Errorf("after the last that is missing: %q", got)
	}
}

// Without a file, a restart is a gap for readers that have a record from before it, and for no
// other reader.
func TestARestartWithoutAFileIsAGap(t *testing.T) {
	before, now := NewID(time.Now().Add(-time.Minute), "u"), NewID(time.Now().Add(time.Minute), "u")
	k := keeper(t, "", false)
	k.Begin(&api.Record{ID: now, Outcome: api.OutcomeRunning})
	for after, gap := range map[string]bool{"": false, before: true, before[:len(before)-1]: true, now[:len(now)-1]: false} {
		got, _ := readLines(t, k.queue, after)
		if gap != strings.HasPrefix(got[0], "gap "+after+"..2") || gap != strings.HasSuffix(got[0], unkeptReason) || got[len(got)-1] != now+" running" {
			t.Errorf("lines after %q = %q, want a gap: %v", after, got, gap)
		}
	}
	with := keeper(t, t.TempDir(), false)
	if got, _ := readLines(t, with.queue, before); len(got) > 0 {
		t.Errorf("lines with a file = %q, want none", got)
	}
}

// When the file shrinks, the lost records are a gap for readers with an earlier position, in the
// next process too, and for no other reader.
func TestARotatedFileLeavesAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w, _ := start(t, Options{Dir: dir, Records: 8})
		for i := range 20 {
			w.Begin(api.Record{ID: fmt.Sprintf("a%03d", i), Outcome: api.OutcomeBack})
			synctest.Wait() // until everything is written
		}
		stop(t, w)
		k := keeper(t, dir, false)
		all, _ := readLines(t, k.queue, "")
		if !strings.HasPrefix(all[0], "gap ..a") || !strings.HasSuffix(all[0], rotatedReason) || !strings.HasPrefix(all[len(all)-1], "a019") {
			t.Fatalf("lines = %q, want a gap for removed records and the newest record last", all)
		}
		first, _, _ := strings.Cut(all[1], " ")
		last := fmt.Sprintf("a%03d", 20-len(all)) // before the first
		if first != fmt.Sprintf("a%03d", 21-len(all)) || !strings.Contains(all[0], ".."+last+":") {
			t.Errorf("lines = %q with the first record %s, want a gap until %s", all, first, last)
		}
		if got, _ := readLines(t, k.queue, last); len(got) != len(all)-1 || got[0] != all[1] {
			t.Errorf("after the last that went: %q", got)
		}
		list, err := Read(Path(dir))
		if err != nil || len(list.Records) != len(all)-1 || len(list.Warnings) > 0 {
			t.Errorf("the mark is read as a record: %d, %v, %v", len(list.Records), list, err)
		}
	})
}

// Records dropped while the disk fails are a gap, before and after the file contains the gap mark.
func TestRecordsThatWereGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		w, n := start(t, Options{Dir: dir, Queue: 2, Retry: time.Millisecond})
		q := NewQueue()
		q.start(time.Now(), nil, Path(dir), w)
		full := make(chan bool, 1)
		full <- true
		w.mu.Lock() // blocks the Writer's goroutine
		w.journal.write = func(f *os.File, b []byte) (int, error) {
			is := <-full
			full <- is
			if is {
				return 0, unix.ENOSPC
			}
			return f.Write(b)
		}
		w.mu.Unlock()
		for i := range recentSize + 4 {
			r := api.Record{ID: fmt.Sprintf("a%03d", i)}
			q.put(r)
			w.Begin(r)
		}
		n.wait(t, 1)
		got, _ := readLines(t, q, "")
		if !strings.HasPrefix(got[0], "gap ..a0") || !strings.Contains(got[0], lostReason) {
			t.Errorf("first line = %q, want a gap for lost records", got[0])
		}
		<-full
		full <- false
		n.wait(t, 2)
		synctest.Wait() // until everything is written
		stop(t, w)
		in, f, err := searchFile(Path(dir))
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if len(in.last) != 2 || in.lost.id != "a033" || in.lost.reason != lostReason {
			t.Errorf("search result = %+v, want two records and a gap mark for a033", in)
		}
	})
}

// A file that cannot be read, and corrupt lines, are gaps: no loss is hidden.
func TestWhatCannotBeReadIsAGap(t *testing.T) {
	dir := t.TempDir()
	k := keeper(t, dir, false)
	if got, _ := readLines(t, k.queue, ""); len(got) != 0 {
		t.Errorf("lines of a missing file = %q, want none", got)
	}
	line := func(id string) string { return `{"version":1,"id":"` + id + `","outcome":"back"}` + "\n" }
	err := atomicfile.Replace(Path(dir), func(f *os.File) error {
		_, err := f.WriteString(line("a") + line("b") + "{\"half\n" + line("c") + `{"version":1,"id":"d"`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[string][]string{
		"":  {"gap ..c: " + brokenReason, "a back", "b back", "c back"},
		"a": {"gap a..c: " + brokenReason, "b back", "c back"},
		"b": {"gap b..c: " + brokenReason, "c back"}, // the record in between was never read
		"c": nil,
	} {
		if got, _ := readLines(t, k.queue, after); !slices.Equal(got, want) {
			t.Errorf("after %q: %q, want %q", after, got, want)
		}
	}
	if err := os.Remove(Path(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", Path(dir)); err != nil {
		t.Fatal(err)
	}
	if got, _ := readLines(t, k.queue, ""); len(got) != 1 || !strings.HasPrefix(got[0], "gap ..: open ") {
		t.Errorf("lines of a file that is a link = %q, want one gap", got)
	}
}
