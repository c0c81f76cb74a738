// Package words finds texts of this repository that are hard to read. It parses files without type
// checking, so that reading the whole tree takes seconds.
//
//	words.go        Tree, File: the findings of a folder or a file, and their shares
//	text.go         passages without their code, free relatives
//	gofile.go       Go files: comments, string literals, test failures
//	page.go         Markdown pages: sentences
//	banned.go       banned phrases and their exceptions
//	banned.txt      the list of them
package words

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Rule names what a finding breaks.
type Rule string

// The rules.
const (
	BannedPhrase Rule = "banned phrase"
	Opening      Rule = "opening"       // a doc comment opens with `X is what` or `X tells`
	FreeRelative Rule = "free relative" // a clause replaces a noun: `what the agent has read`
	Sentence     Rule = "sentence"      // longer than LongSentence words
	LongestRule  Rule = "long sentence" // longer than MaxSentence words
	ShortFailure Rule = "short test failure"
)

// Words of a sentence in the docs, and of a test failure.
const (
	LongSentence = 25
	MaxSentence  = 40
	MinFailure   = 4
)

// Finding is one place that breaks a rule.
type Finding struct {
	Path string
	Line int
	Rule Rule
	Text string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.Path, f.Line, f.Rule, f.Text)
}

// Report is the findings of a tree, or of a file, and how much text they were found in.
type Report struct {
	Findings     []Finding
	CommentLines int // of product code
	FreeLines    int // of them, those on which a free relative begins
	Sentences    int // of pages
	Words        int // of all pages
	HandWritten  int // of them, those of pages that are not generated
}

// Of returns the findings of one rule.
func (r *Report) Of(rule Rule) (out []Finding) {
	for _, f := range r.Findings {
		if f.Rule == rule {
			out = append(out, f)
		}
	}
	return out
}

func (r *Report) add(path string, line int, rule Rule, format string, args ...any) {
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	r.Findings = append(r.Findings, Finding{path, line, rule, text})
}

// Generated are pages that are written by "make generate" or whose content is mostly code.
var Generated = []string{
	"docs/reference/commands.md",
	"docs/reference/configuration.md",
	"docs/reference/logs.md",
	"docs/reference/metrics.md",
}

// Checker reads files.
type Checker struct {
	// Product reports whether a Go file is shipped. Comments of others are read for banned phrases only.
	Product func(path string) bool
	Banned  *Banned
}

// Tree reads the Go files and pages of a folder or file below root. Hidden folders and testdata are skipped.
func (c *Checker) Tree(root, below string) (*Report, error) {
	r := &Report{}
	start := filepath.Join(root, below)
	err := filepath.WalkDir(start, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if full != start && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		ext := filepath.Ext(full)
		if ext != ".go" && ext != ".md" {
			return nil
		}
		text, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, full)
		if err != nil {
			return err
		}
		return c.File(r, filepath.ToSlash(name), text)
	})
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return r, err
}

// File adds the findings of one file to a report.
func (c *Checker) File(r *Report, path string, text []byte) error {
	if strings.HasSuffix(path, ".md") {
		c.page(r, path, string(text))
		return nil
	}
	return c.goFile(r, path, text)
}
