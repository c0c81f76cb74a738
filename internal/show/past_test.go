package show

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
	"jettison/internal/terminal"
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
		ended <- (&Past{File: path, Follow: true}).Print(ctx, terminal.Fixed(w, 0), io.Discard)
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
	next("a ", "back")
	write("b", "running")
	next("b ", "running")
	write("b", "notBack")
	next("b ", "not back in time")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
