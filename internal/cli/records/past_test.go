package records

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
)

// No text in a record begins a line of its own, nor a cell: an error may hold a name that a tenant has chosen, or what a runtime says.
func TestNoTextOfARecordForgesALine(t *testing.T) {
	const forged = "x\noutcome\treleased\x1b[2J"
	r := api.Record{ID: forged, Outcome: forged, Error: forged, Reason: forged, Message: forged,
		Pod: api.Victim{UID: forged, Cgroup: forged, SandboxIDs: []string{forged}}}
	r.Steps = []api.Step{{Name: forged, Error: forged}}
	r.Ranking.Rows = []api.Candidate{{Pod: forged, DecidedBy: forged, Keys: forged}}
	var out strings.Builder
	if err := inFull(&out, &r); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Fixed(&out, 0).Print(rows([]api.Record{r}).Lines(0, true)...); err != nil {
		t.Fatal(err)
	}
	outcomes := 0
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "outcome") {
			outcomes++
		}
	}
	if outcomes != 1 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%d lines of an outcome in\n%q", outcomes, out.String())
	}
}

// Who follows the file sees an eviction when it begins, and again when its outcome is known; one that was there before only once.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	write := func(id, outcome string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.WriteString(`{"version":1,"id":"` + id + `","pod":{"uid":"u"},"began":{},"ranking":{},"outcome":"` + outcome + `"}` + "\n")
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	write("a", "back")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- (&past{file: path, follow: true}).print(ctx, terminal.Fixed(w, 0), io.Discard)
		_ = w.Close()
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		all, buffer := []byte{}, make([]byte, 4096)
		for {
			n, err := r.Read(buffer)
			all = append(all, buffer[:n]...)
			for at := bytes.IndexByte(all, '\n'); at >= 0; at = bytes.IndexByte(all, '\n') {
				lines <- string(all[:at])
				all = all[at+1:]
			}
			if err != nil {
				return
			}
		}
	}()
	next := func(want ...string) {
		t.Helper()
		select {
		case line := <-lines:
			for _, w := range want {
				if !strings.Contains(line, w) {
					t.Errorf("no %q in %q", w, line)
				}
			}
		case <-time.After(20 * time.Second):
			t.Fatal("nothing comes")
		}
	}
	next("ID", "OUTCOME")
	next("a ", "recovered")
	write("b", "running")
	next("b ", "running")
	write("b", "notBack")
	next("b ", "not recovered in time")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// No match is not an empty file, and a file of something else is no file of records.
func TestWhatIsSaidWhereNothingIsListed(t *testing.T) {
	const record = `{"version":1,"id":"a","pod":{"uid":"u","namespace":"shop","name":"web"},"began":{"time":"2026-11-21T08:00:00Z"},` +
		`"ranking":{},"outcome":"back"}` + "\n"
	const lost = `{"version":1,"id":"b","pod":{},"began":{},"ranking":{},"outcome":"lost"}` + "\n"
	for name, c := range map[string]struct {
		text       string
		past       past
		says, fail string
	}{
		"another pod":        {record, past{pod: "shop/db"}, "none of 1 records matches --pod shop/db in FILE\n", ""},
		"long ago":           {record, past{since: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}, "none of 1 records matches --since in FILE\n", ""},
		"both":               {record, past{pod: "x\x1b", since: time.Now()}, "none of 1 records matches --pod x\\u001b and --since in FILE\n", ""},
		"as data":            {record, past{pod: "shop/db", format: output.AsJSON}, "", ""},
		"empty":              {"", past{pod: "shop/db"}, "nothing was recorded in FILE\n", ""},
		"another file":       {"a\nb\nc\n", past{}, "", "none of 3 lines in FILE is a record"},
		"another, as data":   {"a\n", past{format: output.AsJSON}, "", "none of 1 lines in FILE is a record"},
		"another, by pod":    {"a\n", past{pod: "x"}, "", "none of 1 lines in FILE is a record"},
		"the first, half":    {`{"version":1`, past{}, "nothing was recorded in FILE\n", ""},
		"lost, and no other": {"a\n" + lost, past{}, "nothing was recorded in FILE\n", ""},
	} {
		file := filepath.Join(t.TempDir(), "records.jsonl")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.past.file = file
		var out strings.Builder
		err := c.past.print(t.Context(), terminal.Fixed(&out, 0), io.Discard)
		if want := strings.ReplaceAll(c.says, "FILE", file); out.String() != want {
			t.Errorf("%s: %q, want %q", name, out.String(), want)
		}
		if c.fail == "" && err != nil || c.fail != "" && (err == nil || err.Error() != "records: "+strings.ReplaceAll(c.fail, "FILE", file)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The beginning of an ID is enough where only one begins so; an ID that is whole counts before those that begin with it.
func TestPick(t *testing.T) {
	all := []api.Record{{ID: "20260101T1"}, {ID: "20260101T10"}, {ID: "20260102T1"}}
	for id, want := range map[string]string{"20260102": "20260102T1", "20260101T1": "20260101T1", "20260101T10": "20260101T10"} {
		if r, err := pick(all, id); err != nil || r.ID != want {
			t.Errorf("%s: %v, %v", id, r, err)
		}
	}
	for id, want := range map[string]string{"2025": "no record's ID begins with", "202601": "the IDs of 3 records begin with"} {
		if _, err := pick(all, id); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// A file that is not there holds nothing, which is no error; what of one is no record is said on stderr.
func TestPast(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	none := past{file: filepath.Join(dir, "none")}
	if err := none.print(t.Context(), terminal.Fixed(&stdout, 0), &stderr); err != nil || stdout.String() != "nothing was recorded in "+none.file+"\n" {
		t.Errorf("%v, %q", err, stdout.String())
	}
	path := filepath.Join(dir, "records.jsonl")
	text := `{"version":1,"id":"20260101T000000.000000Z-0001","pod":{"uid":"u","namespace":"shop","name":"web"},"signal":"memory.available",` +
		`"threshold":"memory.available<100Mi","began":{"monotonicNs":1000000000},"killed":{"monotonicNs":2000000000},` +
		`"crossed":{"monotonicNs":1990000000,"available":1},"after":{"monotonicNs":2100000000},"outcome":"back"}` + "\nno record\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout.Reset()
	if err := (&past{file: path}).print(t.Context(), terminal.Fixed(&stdout, 0), &stderr); err != nil || !strings.Contains(stdout.String(), "shop/web  memory.available  10.0 ms  100.0 ms  recovered") {
		t.Errorf("%v\n%s", err, stdout.String())
	}
	if want := "jettison: records: " + path + ": 1 lines are no records and were skipped\n"; stderr.String() != want {
		t.Errorf("stderr %q, want %q", stderr.String(), want)
	}
	stdout.Reset()
	if err := (&past{file: path, id: "2026"}).print(t.Context(), terminal.Fixed(&stdout, 0), &stderr); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pod      shop/web", "crossed  -10.0 ms   1 available of not known", "killed   -, 2.000000 monotonic", "after    +100.0 ms  not observed"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}
