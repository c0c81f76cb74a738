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

// No text in a record can add a line or a cell: an error may contain a name that a tenant chose, or text of the runtime.
func TestTextCannotForgeLines(t *testing.T) {
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
		t.Errorf("output has %d outcome lines, want 1 and no escape sequence:\n%q", outcomes, out.String())
	}
}

// With follow, an eviction is printed when it starts and again when its outcome is known; an older record only once.
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
		ended <- (&query{file: path, follow: true}).print(ctx, terminal.Fixed(w, 0), io.Discard)
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
					t.Errorf("line %q of the list lacks %q", line, w)
				}
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no line printed within 20 s")
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

// The text for no match differs from that for an empty file; a file without any record is an error.
func TestEmptyLists(t *testing.T) {
	const record = `{"version":1,"id":"a","pod":{"uid":"u","namespace":"shop","name":"web"},"began":{"time":"2026-11-21T08:00:00Z"},` +
		`"ranking":{},"outcome":"back"}` + "\n"
	const lost = `{"version":1,"id":"b","pod":{},"began":{},"ranking":{},"outcome":"lost"}` + "\n"
	for name, c := range map[string]struct {
		text       string
		query      query
		want, fail string
	}{
		"another pod":        {record, query{pod: "shop/db"}, "none of 1 records in FILE matches --pod shop/db\n", ""},
		"long ago":           {record, query{since: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}, "none of 1 records in FILE matches --since\n", ""},
		"both":               {record, query{pod: "x\x1b", since: time.Now()}, "none of 1 records in FILE matches --pod x\\u001b and --since\n", ""},
		"as data":            {record, query{pod: "shop/db", format: output.AsJSONL}, "", ""},
		"as one document":    {record, query{pod: "shop/db", format: output.AsJSON}, "[]\n", ""},
		"empty":              {"", query{pod: "shop/db"}, "no records in FILE\n", ""},
		"another file":       {"a\nb\nc\n", query{}, "", "none of 3 lines in FILE is a record"},
		"another, as data":   {"a\n", query{format: output.AsJSON}, "", "none of 1 lines in FILE is a record"},
		"another, by pod":    {"a\n", query{pod: "x"}, "", "none of 1 lines in FILE is a record"},
		"the first, half":    {`{"version":1`, query{}, "no records in FILE\n", ""},
		"lost, and no other": {"a\n" + lost, query{}, "no records in FILE\n", ""},
	} {
		file := filepath.Join(t.TempDir(), "records.jsonl")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.query.file = file
		var out strings.Builder
		err := c.query.print(t.Context(), terminal.Fixed(&out, 0), io.Discard)
		if want := strings.ReplaceAll(c.want, "FILE", file); out.String() != want {
			t.Errorf("%s: output %q, want %q", name, out.String(), want)
		}
		if c.fail == "" && err != nil || c.fail != "" && (err == nil || err.Error() != "records: "+strings.ReplaceAll(c.fail, "FILE", file)) {
			t.Errorf("%s: error %v, want %q", name, err, c.fail)
		}
	}
}

// A unique prefix selects a record; a whole ID wins over longer IDs with that prefix.
func TestPick(t *testing.T) {
	all := []api.Record{{ID: "20260101T1"}, {ID: "20260101T10"}, {ID: "20260102T1"}}
	for id, want := range map[string]string{"20260102": "20260102T1", "20260101T1": "20260101T1", "20260101T10": "20260101T10"} {
		if r, err := pick(all, id); err != nil || r.ID != want {
			t.Errorf("pick(%s) = %v, %v, want %s", id, r, err, want)
		}
	}
	for id, want := range map[string]string{"2025": "no record's ID begins with", "202601": `"202601" is the beginning of 3 IDs`} {
		if _, err := pick(all, id); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("pick(%s): error %v, want %q", id, err, want)
		}
	}
}

// A missing file has no records and is no error; lines that are not records are reported on stderr.
func TestPrint(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	none := query{file: filepath.Join(dir, "none")}
	if err := none.print(t.Context(), terminal.Fixed(&stdout, 0), &stderr); err != nil || stdout.String() != "no records in "+none.file+"\n" {
		t.Errorf("missing file: error %v, output %q", err, stdout.String())
	}
	path := filepath.Join(dir, "records.jsonl")
	text := `{"version":1,"id":"20260101T000000.000000Z-0001","pod":{"uid":"u","namespace":"shop","name":"web"},"signal":"memory.available",` +
		`"threshold":"memory.available<100Mi","began":{"monotonicNs":1000000000},"killed":{"monotonicNs":2000000000},` +
		`"crossed":{"monotonicNs":1990000000,"available":1},"after":{"monotonicNs":2100000000},"outcome":"back"}` + "\nno record\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout.Reset()
	if err := (&query{file: path}).print(t.Context(), terminal.Fixed(&stdout, 0), &stderr); err != nil || !strings.Contains(stdout.String(), "shop/web  memory.available  10.0 ms     100.0 ms  recovered") {
		t.Errorf("list has error %v, want the killed pod in\n%s", err, stdout.String())
	}
	if want := "jettison: records: " + path + ": skipped 1 corrupt lines\n"; stderr.String() != want {
		t.Errorf("stderr %q, want %q", stderr.String(), want)
	}
	stdout.Reset()
	if err := (&query{file: path, id: "2026"}).print(t.Context(), terminal.Fixed(&stdout, 0), &stderr); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pod      shop/web", "crossed  -10.0 ms   1 available of unknown", "killed   -, 2.000000 monotonic", "after    +100.0 ms  not observed"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("record in full lacks %q:\n%s", want, stdout.String())
		}
	}
}
