package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// made is a small tree. Each figure of the table that it has is in want.
var made = map[string]string{
	"internal/base/add/add.go": `package add

import "math"

func plus(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func minus(a, b uint64) uint64 { return a - b }

func sum[T int64 | uint64](a, b T) T {
	if a+b >= a {
		return a + b
	}
	return math.MaxInt64
}

func half[T int64 | uint64](a, b T) T { return (a + b) / 2 }

func join[T ~string](a, b T) T { return a + b + T(rune(math.MaxInt8)) }
`,
	"internal/base/retry/retry.go": `package retry

import (
	"context"
	"time"

	"jettison/internal/agent"
)

func Do(ctx context.Context, do func() error) {
	agent.Named()
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func poll(tick *time.Ticker) {
	for {
		<-tick.C
	}
}

func Close(done chan struct{}) {
	timer := time.NewTimer(time.Second)
	select {
	case <-done:
	case <-timer.C:
	}
}
`,
	"internal/node/node.go": "package node\n\nimport _ \"jettison/internal/base/add\"\n",
	"internal/agent/agent.go": `package agent

import (
	"jettison/internal/base/retry"
	_ "jettison/internal/node"
)

func Named() {}

func Run() { retry.Do(nil, nil) }

// ` + strings.Repeat("x", 120) + `
`,
	"internal/agent/agent_test.go":   "package agent\n\nimport _ \"jettison/internal/cli\"\n",
	"internal/agent/race_on_test.go": "package agent\n",
	"internal/cli/cli.go": `package cli

type FieldError struct{ field, what string }

func (e *FieldError) Error() string { return e.field }

func decode(d interface{ KnownFields(bool) }) { d.KnownFields(true) }
`,
	"eviction/manager.go": "package eviction\n\ntype Manager struct{}\n\nfunc (m *Manager) A() {}\n",
	"eviction/more.go":    "package eviction\n\nfunc (m Manager) B() {}\n\nfunc (m *Manager) C() {}\n",
	"internal/agent/kill/victim.go": `package kill

import "sync"

type Victim struct {
	sync.Mutex
	a, b int
}
`,
	"e2e/x.go": "package e2e\n",
	"words/words.go": "// Package words tells the reader.\n// What the agent reads is here.\npackage words\n\n" +
		"// F is what runs.\nfunc F() {}\n",
	"words/words_test.go":         "package words\n\nfunc f() { t.Fatal(\"bad\") }\n",
	"docs/page.md":                "# Page\n\n" + strings.Repeat("word ", 26) + ". Whoever reads.\n",
	"internal/nodetest/helper.go": "package nodetest\n",
}

var madeJourneys = fstest.MapFS{
	"a/new.txt": {Data: []byte("internal/agent Renamed\n")},
	"a/old.txt": {Data: []byte("# comment\ninternal/agent Run\n  internal/base/retry Do | internal/gone Do\n" +
		"    internal/agent Named\n    ? internal/gone F\n  eviction (*Manager).A\n")},
	"b/only.txt": {Data: []byte("internal/agent Run\n  internal/gone F | internal/gone G\n")},
}

const want = `
| rooms: folders directly below internal/ | 4 |
| arrows between rooms | 4 |
| arrows that run up (base < node, kube < agent, cli, bridge, cluster, pods) | 1 |
| | base -> agent |
| circles of rooms | 1 |
| | agent, base, node |
| packages below internal/ | 6 |
| imports among these packages | 4 |
| journey: a, files / returns / back | 3 / 1 / 2 |
| | internal/agent/agent.go |
| | internal/base/retry/retry.go |
| | eviction/manager.go |
| | return from internal/base/retry/retry.go to internal/agent/agent.go |
| | back from internal/agent/agent.go to internal/base/retry/retry.go |
| | back from internal/base/retry/retry.go to internal/agent/agent.go |
| journey: b, files / returns / back | n/a: step internal/gone F or internal/gone G not found |
| methods of eviction.Manager | 3 |
| files with methods of eviction.Manager | 2 |
| fields of kill.Victim | 3 |
| fields of deliver.Deliverer | n/a |
| copies: saturating add | 2 |
| | internal/base/add/add.go:5 plus |
| | internal/base/add/add.go:14 sum |
| copies: strict decoders | 1 |
| copies: bad field error types | 1 |
| copies: retry loops | 1 |
| copies: close with deadline | 1 |
| | internal/base/retry/retry.go:27 Close |
| copies: race_on and race_off files | 1 |
| comment lines of the product with a free relative | 2 (50.0 %) |
| | words/words.go:2 Package words tells the reader. What the agent reads is here. |
| | words/words.go:5 F is what runs. |
| openings of doc comments by a clause, or a thing that tells | 2 |
| words of docs, of which hand-written | 31 / 31 |
| sentences of docs over 25 words | 1 (33.3 %) |
| sentences of docs over 40 words | 0 |
| test failures under 4 words | 1 |
| | words/words_test.go:3 "bad" |
| banned phrases | 2 |
`

func write(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range made {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func measured(t *testing.T, dir string) string {
	t.Helper()
	read, err := readTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printTable(&out, read, madeJourneys, true); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestMeasure(t *testing.T) {
	got := measured(t, write(t))
	for line := range strings.Lines(strings.TrimPrefix(want, "\n")) {
		if !strings.Contains(got, line) {
			t.Errorf("the table has no line %q", line)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// A commit is measured as the tree that it was made from, whatever the checkout has by then.
func TestMeasureCommit(t *testing.T) {
	dir := write(t)
	before := measured(t, dir)
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."},
		{"-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "commit", "-qm", "x"},
	} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v failed in the test repository: %v\n%s", args, err, out)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "internal/cli")); err != nil {
		t.Fatal(err)
	}
	extracted, err := extract(dir, "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(extracted)
	if got := measured(t, extracted); got != before {
		t.Errorf("of the commit:\n%s\nof the tree:\n%s", got, before)
	}
	if _, err := extract(dir, "none"); err == nil {
		t.Error("extract of an unknown commit = nil, want an error")
	}
}

func TestJourneyThatIsMalformed(t *testing.T) {
	for _, text := range []string{"a F\n    b G\n", " a F\n", "  a F\n", "a\n", "a F |\n", "a b F\n"} {
		if _, err := parseJourney(text); err == nil {
			t.Errorf("parseJourney(%q) = no error, want one", text)
		}
	}
}

// The journeys in this folder are well formed.
func TestJourneys(t *testing.T) {
	names, err := filepath.Glob("journeys/*/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("journeys of the tree = %v, error %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseJourney(string(text)); err != nil {
			t.Errorf("journey %s is not valid: %v", name, err)
		}
	}
}

// The steps of each journey exist in this tree: a renamed function must be renamed in its journey.
func TestJourneysFollowTheCode(t *testing.T) {
	read, err := readTree("../..")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := journeyRows(read, os.DirFS("journeys"))
	if err != nil || len(rows) != 3 {
		t.Fatalf("read %d journeys, error %v, want 3 and no error", len(rows), err)
	}
	for _, r := range rows {
		if strings.Contains(r.figure, "not found") {
			t.Errorf("%s = %s, want figures", r.what, r.figure)
		}
	}
}
