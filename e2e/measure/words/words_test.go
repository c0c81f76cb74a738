package words

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const sampleList = `
# a comment
anew     # again
/\bin vain(ly)?\b/ # without success
told     # reported
exceptions:
old/:told: fixtures of an older version
`

func report(t *testing.T, path, text string) *Report {
	t.Helper()
	banned, err := ParseBanned(sampleList)
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{}
	c := &Checker{Banned: banned, Product: func(path string) bool { return !strings.HasSuffix(path, "_test.go") }}
	if err := c.File(r, path, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return r
}

// Each sample has exactly the findings that are listed, as line and rule.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		path, text string
		want       []string
	}{
		// banned phrases
		{"a.go", "// Package a begins anew\npackage a\n", []string{"1 banned phrase"}},
		{"a.go", "// Package a runs in\n// vain.\npackage a\n", []string{"1 banned phrase"}},
		{"a.go", "// Package a has `anew`, newly and retold.\npackage a\n", nil},
		{"a.go", "package a\n\nvar x = \"begins \" +\n\t\"anew\"\n", []string{"3 banned phrase"}},
		{"a.go", "package a\n\nvar x = `one\nbegins anew`\n", []string{"4 banned phrase"}},
		{"a.go", "package a\n\nvar x = \"anew\" // an enum\n", nil},
		{"a.go", "package a\n\nimport \"x/in vain\"\n\ntype b struct {\n\tc int `json:\"told anew\"`\n}\n", nil},
		{"a.go", "package a\n\nfunc f() {\n\t//log: The write was told.\n\tlog.Info(\"x\")\n}\n", []string{"4 banned phrase"}},
		{"a_test.go", "package a\n\n// It begins anew.\nvar x = \"anew and anew\"\n", []string{"3 banned phrase"}},
		{"old/a.go", "// Package a was told.\npackage a\n", nil},
		{"a.md", "# Anew\n\nIt is `anew`.\n\n```\nanew\n```\n", []string{"1 banned phrase"}},
		{"a.md", "| a | b |\n|---|---|\n| x | in vain |\n", []string{"3 banned phrase"}},
		{"a.md", "See [the page](told.md).\n", nil},

		// openings
		{"a.go", "package a\n\n// F is when it runs.\nfunc F() {}\n", []string{"3 opening"}},
		{"a.go", "package a\n\n// The F is how it runs.\nvar F int\n", []string{"3 opening"}},
		{"a.go", "package a\n\ntype t struct {\n\t// x tells whether it runs.\n\tx int\n}\n", []string{"4 opening"}},
		{"a.go", "package a\n\n// F is the time of the run. It is how it is.\nfunc F() {}\n", nil},
		{"a.go", "package a\n\n// F reports whether it runs.\nfunc F() {}\n", nil},
		{"a_test.go", "package a\n\n// F is when it runs.\nfunc F() {}\n", nil},

		{"a.go", "// Package a says how it runs.\npackage a\n", []string{"1 opening"}},

		// free relatives
		{"a.go", "// Package a has what the agent reads.\npackage a\n", []string{"1 free relative"}},
		{"a.go", "// Package a reads: what\n// it reads and what a pod has is here.\npackage a\n",
			[]string{"1 free relative", "2 free relative"}},
		{"a.go", "// Package a belongs to who asks.\npackage a\n", []string{"1 free relative"}},
		{"a.go", "// Package a decides what to do, what kind of pod, and what happens.\npackage a\n", nil},
		{"a.go", "// Package a is for users who ask, whatsoever.\npackage a\n", nil},
		{"a_test.go", "// Package a has what the agent reads.\npackage a\n", nil},

		// sentences
		{"a.md", words(25) + ". " + words(25) + ".\n", nil},
		{"a.md", "\n" + words(26) + ".\n", []string{"2 sentence"}},
		{"a.md", words(20) + "\n" + words(20) + "\n" + words(1) + ".\n", []string{"1 long sentence"}},
		{"a.md", "- " + words(20) + "\n- " + words(20) + "\n", nil},
		{"a.md", "- " + words(20) + "\n  " + words(20) + "\n", []string{"1 sentence"}},
		{"a.md", "| " + words(20) + " | " + words(30) + " |\n", []string{"1 sentence"}},
		{"a.md", "```\n" + words(50) + "\n```\n\n`" + words(50) + "`\n\n<!--\n" + words(50) + "\n-->\n", nil},
		{"a.md", words(20) + ", e.g. " + words(20) + ".\n", []string{"1 long sentence"}},
		{"a.md", words(20) + ". `Code` " + words(20) + ".\n", nil},

		// failures of tests
		{"a_test.go", failing(`t.Fatal("bad")`), []string{"4 short test failure"}},
		{"a_test.go", failing(`t.Errorf("%s: got %v, want %v", a, b, c)`), []string{"4 short test failure"}},
		{"a_test.go", failing(`tb.Errorf("%-5s: %.2f\n%s", a, b, c)`), []string{"4 short test failure"}},
		{"a_test.go", failing(`c.t.Error("gone ", err)`), []string{"4 short test failure"}},
		{"a_test.go", failing(`t.Errorf("Parse(%q) = %v, want %v", a, b, c)`), nil},
		{"a_test.go", failing(`t.Errorf("victim after 2 s = %q, want %q", a, b)`), nil},
		{"a_test.go", failing(`t.Errorf("the agent evicted " + "%v", a)`), []string{"4 short test failure"}},
		{"a_test.go", failing(`t.Errorf("the agent evicted "+ "no pod", a)`), nil},
		{"a_test.go", failing(`t.Fatal(err)`), nil},
		{"a_test.go", failing(`log.Error("gone")`), nil},
	} {
		var got []string
		for _, f := range report(t, c.path, c.text).Findings {
			got = append(got, fmt.Sprintf("%d %s", f.Line, f.Rule))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("findings of %s %q = %q, want %q", c.path, c.text, got, c.want)
		}
	}
}

func words(n int) string { return strings.TrimSpace(strings.Repeat("Word ", n)) }

func failing(call string) string { return "package a\n\nfunc TestF() {\n\t" + call + "\n}\n" }

func TestBannedListErrors(t *testing.T) {
	for _, text := range []string{
		"anew\n", "anew #\n", "/(/ # x\n", "anew # again\nexceptions:\na.go:told: x\n", "anew # again\nexceptions:\na.go:anew\n",
	} {
		if _, err := ParseBanned(text); err == nil {
			t.Errorf("ParseBanned(%q) = nil error, want one", text)
		}
	}
	if _, err := List(); err != nil {
		t.Errorf("the list of this repository: %v", err)
	}
}

func TestExceptionsAreMarkedAsUsed(t *testing.T) {
	banned, err := ParseBanned(sampleList)
	if err != nil {
		t.Fatal(err)
	}
	c := &Checker{Banned: banned, Product: func(string) bool { return true }}
	for path, want := range map[string]bool{"new/a.md": false, "old/a.md": true} {
		if err := c.File(&Report{}, path, []byte("It was told.\n")); err != nil {
			t.Fatal(err)
		}
		if used := banned.Exceptions()[0].Used; used != want {
			t.Errorf("exception for old/ used after %s = %v, want %v", path, used, want)
		}
		banned.Exceptions()[0].Used = false
	}
}

func TestNeeded(t *testing.T) {
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{`\bthat which\b`, []string{"that"}},
		{`\bin vain\b|\bvainly\b`, []string{"in", "vainly"}},
		{`\blets? in\b`, []string{"let"}},
		{`\bg[eo]t\b`, []string{"g"}},
		{`\bstands (?:in|on)\b|\bstands[.,]`, []string{"stands", "stands"}},
		{`\b(?:is|are) there\b`, nil},
		{`, for (?:it|they)`, []string{","}},
	} {
		if got := requiredTexts(c.pattern); !slices.Equal(got, c.want) {
			t.Errorf("needed(%q) = %q, want %q", c.pattern, got, c.want)
		}
	}
}
