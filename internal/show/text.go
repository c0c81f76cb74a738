// Package show writes what is known as people read it: figures with their units, tables, and texts from outside on one line.
//
//	text.go    what a text has to be to stand in a line or a cell of a table
//	figure.go  amounts, shares and times, each in its unit
//	usage.go   what a node and its pods use
//	past.go    the evictions of a node: a list of them, or one in full
package show

import (
	"fmt"
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

// Printable is a text from outside as a cell may have it: quoted, where a terminal or the table would not just print it.
func Printable(text string) string {
	if printable.Text(text) != text {
		return fmt.Sprintf("%q", text)
	}
	return text
}
