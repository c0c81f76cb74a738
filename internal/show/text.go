// Package show writes what is known as people read it: figures with their units, tables, and texts from outside on one line.
//
//	text.go    what a text has to be to stand in a line or a cell of a table
//	output.go  Format: table, wide, JSON or YAML
//	figure.go  amounts, shares and times, each in its unit
//	usage.go   what a node and its pods use
//	past.go    the evictions of a node: a list of them, or one in full
package show

import (
	"errors"
	"strings"

	"jettison/internal/printable"
)

// OneLine is a text with its white space, line ends too, made single spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// OrDash is a cell of a table: an empty one has a dash.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// errorLines are a line for each of the errors that were joined in one; nil has none. A line end within an error's own text is a part of a
// name in it, as a cgroup's which a tenant has made: escaped, it begins no line of the tenant's own.
func errorLines(err error) (lines []string) {
	if err == nil {
		return nil
	}
	text := err.Error()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var texts []string
		for _, one := range joined.Unwrap() {
			texts = append(texts, one.Error())
			lines = append(lines, errorLines(one)...)
		}
		if strings.Join(texts, "\n") == text {
			return lines
		}
	}
	if inner := errors.Unwrap(err); inner != nil {
		if before, ok := strings.CutSuffix(text, inner.Error()); ok {
			if lines = errorLines(inner); len(lines) > 0 {
				lines[0] = printable.Text(before) + lines[0]
				return lines
			}
		}
	}
	return []string{printable.Text(text)}
}
