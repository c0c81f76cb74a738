package show

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/observe"
	"jettison/internal/printable"
	"jettison/internal/terminal"
	"jettison/stats"
)

func TestFigures(t *testing.T) {
	some, none := stats.Some[uint64], stats.Opt[uint64]{}
	for got, want := range map[string]string{
		Bytes(10<<10 - 1):  "10Ki",
		Bytes(10 << 10):    "10Ki",
		Bytes(10 << 20):    "10Mi",
		Bytes(100<<30 - 1): "100Gi",
		Bytes(100 << 30):   "100Gi",
		Bytes(0):           "0",
		Bytes(1023):        "1023",
		Bytes(1536 << 20):  "1.5Gi",
		Bytes(1 << 63):     "8Ei",
		Amount(stats.SignalMemoryPressureFull, 123_000):                  "12.3%",
		Span(59*time.Second + 600*time.Millisecond):                      "1m00s",
		Span(90 * time.Minute):                                           "1h30m",
		Span(50 * time.Hour):                                             "2d02h",
		"time " + Time(time.Time{}):                                      "time -",
		Time(time.Unix(0, 0)):                                            "1970-01-01T00:00:00Z",
		Amount(stats.SignalMemoryAvailable, 64<<20):                      "64Mi",
		Amount(stats.SignalPIDAvailable, 64<<20):                         "67108864",
		Amount(stats.SignalNodeFsInodesFree, 20<<10):                     "20480",
		Size(some(20 << 20)):                                             "20Mi",
		"size " + Size(none):                                             "size -",
		Count(some(7)):                                                   "7",
		"count " + Count(none):                                           "count -",
		Cores(some(1_499_999)):                                           "1m",
		Cores(some(1_500_000)):                                           "2m",
		"cores " + Cores(none):                                           "cores -",
		Between(stats.Some(stats.Range{Min: 20 << 20, Max: 30 << 20})):   "20Mi..30Mi",
		Between(stats.Some(stats.Exactly(11 << 20))):                     "11Mi",
		Between(stats.Some(stats.Range{Min: 12 << 20, Max: 12<<20 + 1})): "12Mi",
		"between " + Between(stats.Opt[stats.Range]{}):                   "between -",
		"share " + Percent(stats.Observation{}):                          "share -",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A line is one, and an empty cell has a dash.
func TestTexts(t *testing.T) {
	if OneLine(" a\n\tb  c\r\n") != "a b c" || OrDash("") != "-" || OrDash("x") != "x" {
		t.Error("OneLine or OrDash")
	}
}

// What was not seen is a dash in the table, and a line on stderr.
func TestNode(t *testing.T) {
	now := time.Unix(1700000000, 0)
	look := &observe.Look{Time: now, HostErr: os.ErrNotExist}
	look.Summary.Pods = []stats.PodStats{
		{PodRef: stats.PodReference{Namespace: "shop", Name: "web", UID: "u1"}, Announced: true, QOSClass: stats.Burstable, Threads: stats.Some(uint64(3))},
		{PodRef: stats.PodReference{UID: "u2"}},
		{PodRef: stats.PodReference{Namespace: "shop", Name: "a\tb\nc\x1b[2J\u009b"}, Announced: true},
	}
	var stdout, stderr bytes.Buffer
	if err := Node(look, stats.MemoryAvailableLower, AsTable, terminal.Fixed(&stdout, 0), &stderr); err != nil {
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
		t.Errorf("got\n%s\nwant\n%s", stdout.String(), want)
	}
	stdout.Reset()
	if err := Node(look, stats.MemoryAvailableLower, AsJSON, terminal.Fixed(&stdout, 0), &stderr); err != nil || !strings.Contains(stdout.String(), `"uid": "u1"`) {
		t.Errorf("%v\n%s", err, stdout.String())
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
	none := Past{File: filepath.Join(dir, "none")}
	if err := none.Print(t.Context(), terminal.Fixed(&stdout, 0), &stderr); err != nil || stdout.String() != "nothing was recorded in "+none.File+"\n" {
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
	if err := (&Past{File: path}).Print(t.Context(), terminal.Fixed(&stdout, 0), &stderr); err != nil || !strings.Contains(stdout.String(), "shop/web  memory.available  10.0 ms  100.0 ms  back") {
		t.Errorf("%v\n%s", err, stdout.String())
	}
	if want := "jettison: records: " + path + ": 1 lines are no records and were skipped\n"; stderr.String() != want {
		t.Errorf("stderr %q, want %q", stderr.String(), want)
	}
	stdout.Reset()
	if err := (&Past{File: path, ID: "2026"}).Print(t.Context(), terminal.Fixed(&stdout, 0), &stderr); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pod      shop/web", "crossed  -10.0 ms   1 available of not known", "killed   -, 2.000000 monotonic", "after    +100.0 ms  not observed"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

// What could not be seen is a line each, and the name of a tenant's cgroup in one begins none of its own.
func TestACgroupsNameBeginsNoLine(t *testing.T) {
	name := "kubepods/podx/c/a\njettison: stats: pod kube-system/dns leaks memory"
	raw := &os.PathError{Op: "open", Path: "/sys/fs/cgroup/" + name, Err: os.ErrPermission}
	look := observe.Look{
		Err:     errors.Join(fmt.Errorf("look: %w", errors.Join(raw, errors.New("two"))), nil, fmt.Errorf("cgroup %q: three", name)),
		HostErr: fmt.Errorf("%w, %w", raw, errors.New("four")),
	}
	var out, errs bytes.Buffer
	if err := Node(&look, stats.MemoryAvailable(""), AsTable, terminal.Fixed(&out, 0), printable.Writer(&errs)); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n")
	if len(got) != 4 {
		t.Fatalf("%d lines, want 4:\n%s", len(got), errs.String())
	}
	for i, want := range []string{", four", "look: open /sys", "two", "three"} {
		if !strings.HasPrefix(got[i], "jettison: stats: ") || !strings.Contains(got[i], want) {
			t.Errorf("line %d: %q, want %q", i, got[i], want)
		}
	}
}
