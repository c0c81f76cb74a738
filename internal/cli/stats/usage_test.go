package stats

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"jettison/internal/base/output"
	"jettison/internal/base/printable"
	"jettison/internal/base/terminal"
	"jettison/internal/node/observe"
	"jettison/stats"
)

// An unknown value is a dash in the table, and its error a line on stderr.
func TestNode(t *testing.T) {
	now := time.Unix(1700000000, 0)
	look := &observe.Look{Time: now, HostErr: os.ErrNotExist}
	look.Summary.Pods = []stats.PodStats{
		{PodRef: stats.PodReference{Namespace: "shop", Name: "web", UID: "u1"}, Announced: true, QOSClass: stats.Burstable, Threads: stats.Some(uint64(3))},
		{PodRef: stats.PodReference{UID: "u2"}},
		{PodRef: stats.PodReference{Namespace: "shop", Name: "a\tb\nc\x1b[2J\u009b"}, Announced: true},
	}
	var stdout, stderr bytes.Buffer
	if err := printLook(look, stats.MemoryAvailableLower, output.AsTable, terminal.Fixed(&stdout, 0), &stderr); err != nil {
		t.Fatal(err)
	}
	if want := "jettison: stats: file does not exist\n"; stderr.String() != want {
		t.Errorf("stderr %q, want %q", stderr.String(), want)
	}
	want := `SIGNAL  AVAILABLE  OF  SHARE

POD                        QOS        WORKING SET  REQUEST  FREED BY KILL  THREADS  CPU  DISK  OOM KILLS  RESTARTS
shop/web                   Burstable            -        -              -        3    -     -          -         -
uid:u2                     -                    -        -              -        -    -     -          -         -
shop/a b c\u001b[2J\u009b  -                    -        -              -        -    -     -          -         -
`
	if stdout.String() != want {
		t.Errorf("table is\n%s\nwant\n%s", stdout.String(), want)
	}
	stdout.Reset()
	if err := printLook(look, stats.MemoryAvailableLower, output.AsJSON, terminal.Fixed(&stdout, 0), &stderr); err != nil || !strings.Contains(stdout.String(), `"uid": "u1"`) {
		t.Errorf("JSON output: error %v, no uid u1 in\n%s", err, stdout.String())
	}
}

// Each error has one line; the name of a tenant's cgroup cannot add a line.
func TestCgroupNameCannotForgeLines(t *testing.T) {
	name := "kubepods/podx/c/a\njettison: stats: pod kube-system/dns leaks memory"
	raw := &os.PathError{Op: "open", Path: "/sys/fs/cgroup/" + name, Err: os.ErrPermission}
	look := observe.Look{
		Err:     errors.Join(fmt.Errorf("look: %w", errors.Join(raw, errors.New("two"))), nil, fmt.Errorf("cgroup %q: three", name)),
		HostErr: fmt.Errorf("%w, %w", raw, errors.New("four")),
	}
	var out, errs bytes.Buffer
	if err := printLook(&look, stats.MemoryAvailable(""), output.AsTable, terminal.Fixed(&out, 0), printable.Writer(&errs)); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n")
	if len(got) != 4 {
		t.Fatalf("stderr has %d lines, want 4:\n%s", len(got), errs.String())
	}
	for i, want := range []string{", four", "look: open /sys", "two", "three"} {
		if !strings.HasPrefix(got[i], "jettison: stats: ") || !strings.Contains(got[i], want) {
			t.Errorf("stderr line %d = %q, want %q", i, got[i], want)
		}
	}
}
