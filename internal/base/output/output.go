// Package output formats what commands print: amounts and times with their units, text on one line,
// and values as JSON or YAML. It knows nothing of the rest of the module.
//
//	output.go  text for one line or one cell of a table
//	format.go  Format: table, wide, JSON or YAML
//	units.go   amounts and times, each in its unit
package output

import "strings"

// OneLine is a text with its white space, line ends too, made single spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// OrDash is a cell of a table: an empty one has a dash.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
