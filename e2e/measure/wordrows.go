package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"jettison/e2e/measure/words"
)

// readWords reads the texts of a folder or file below a tree.
func readWords(dir, below string) (*words.Report, error) {
	banned, err := words.List()
	if err != nil {
		return nil, fmt.Errorf("read the list of banned phrases: %w", err)
	}
	checker := &words.Checker{Product: isProduct, Banned: banned}
	return checker.Tree(dir, below)
}

// wordRows has a row for each figure of the texts.
func wordRows(r *words.Report) []row {
	found := func(what string, rules ...words.Rule) row {
		var places []string
		for _, rule := range rules {
			for _, f := range r.Of(rule) {
				places = append(places, fmt.Sprintf("%s:%d %s", f.Path, f.Line, strings.ReplaceAll(f.Text, "|", `\|`)))
			}
		}
		return count(what, places)
	}
	share := func(what string, part, whole int, rules ...words.Rule) row {
		out := found(what, rules...)
		out.figure = fmt.Sprintf("%d (%s)", part, percent(part, whole))
		return out
	}
	tooLong := len(r.Of(words.LongestRule))
	return []row{
		share("comment lines of the product with a free relative", r.FreeLines, r.CommentLines, words.FreeRelative),
		found("openings of doc comments by a clause, or a thing that tells", words.Opening),
		{"words of docs, of which hand-written", fmt.Sprintf("%d / %d", r.Words, r.HandWritten), nil},
		share(fmt.Sprintf("sentences of docs over %d words", words.LongSentence), len(r.Of(words.Sentence))+tooLong, r.Sentences,
			words.Sentence, words.LongestRule),
		found(fmt.Sprintf("sentences of docs over %d words", words.MaxSentence), words.LongestRule),
		found(fmt.Sprintf("test failures under %d words", words.MinFailure), words.ShortFailure),
		found("banned phrases", words.BannedPhrase),
	}
}

// printFindings prints the findings of a folder or file of this module, one per line.
func printFindings(out io.Writer, folder string) error {
	full, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	root, err := moduleAbove(full)
	if err != nil {
		return err
	}
	below, err := filepath.Rel(root, full)
	if err != nil {
		return err
	}
	r, err := readWords(root, below)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	for _, f := range r.Findings {
		fmt.Fprintln(w, f)
	}
	return w.Flush()
}

// moduleAbove returns the nearest folder above a path with a go.mod whose module is this one: rules name files from there.
func moduleAbove(full string) (string, error) {
	for dir := full; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module jettison\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s does not lie in this module", full)
		}
	}
}
