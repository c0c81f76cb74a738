package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"unicode/utf8"
)

// lines counts the lines of the product's files that match.
func (t *tree) lines(match func(f *file, line string) bool) (n int) {
	for _, f := range t.product {
		for _, line := range f.lines {
			if match(f, line) {
				n++
			}
		}
	}
	return n
}

// percent returns a share with one digit.
func percent(part, whole int) string {
	if whole == 0 {
		return na
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

func shareRows(t *tree) []row {
	all := t.lines(func(*file, string) bool { return true })
	below := t.lines(func(f *file, _ string) bool { return strings.HasPrefix(f.path, "internal/") })
	return []row{
		{"product lines", fmt.Sprint(all), nil},
		{"product lines in internal/", fmt.Sprintf("%d (%s)", below, percent(below, all)), nil},
	}
}

// spread formats the median, the 90th percentile and the maximum. The p-th percentile of n values
// in order is the one at index p*(n-1)/100, rounded down.
func spread(values []int) string {
	if len(values) == 0 {
		return na
	}
	slices.Sort(values)
	at := func(p int) int { return values[p*(len(values)-1)/100] }
	return fmt.Sprintf("%d / %d / %d", at(50), at(90), at(100))
}

// sizeRows counts a tab as one character, as TestLinesAreReadable does. A function is its lines
// from func to the last brace, without its comment.
func sizeRows(t *tree) []row {
	all := t.lines(func(*file, string) bool { return true })
	var rows []row
	for _, width := range []int{120, 100} {
		wider := func(_ *file, line string) bool { return utf8.RuneCountInString(line) > width }
		n := t.lines(wider)
		what := fmt.Sprintf("product lines over %d columns", width)
		rows = append(rows, row{what, fmt.Sprintf("%d (%s)", n, percent(n, all)), nil})
	}
	var functions, files []int
	t.funcs(func(_ *file, d *ast.FuncDecl) {
		functions = append(functions, t.fset.Position(d.End()).Line-t.fset.Position(d.Pos()).Line+1)
	})
	for _, f := range t.product {
		files = append(files, len(f.lines))
	}
	return append(rows,
		row{fmt.Sprintf("lines of %d functions, p50 / p90 / max", len(functions)), spread(functions), nil},
		row{fmt.Sprintf("lines of %d files, p50 / p90 / max", len(files)), spread(files), nil},
	)
}
