// Package output formats the output of commands: amounts and times with their units, text on one
// line, and values as JSON or YAML. It does not depend on other packages of the module.
//
//	output.go  text for one line or one cell of a table
//	format.go  Format: table, wide, JSON or YAML
//	units.go   amounts and times, each in its unit
package output

import "strings"

// OneLine returns a text with each run of white space, including line ends, replaced by a space.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// OrDash returns a table cell, with a dash for an empty one.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
