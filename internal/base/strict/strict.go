// Package strict decodes YAML and JSON without tolerance. A field that is unknown, set twice or of
// another type is an error that says where it is, what was wanted and which known name is most like
// it.
//
//	strict.go    FieldError: what is wrong with a file, and where
//	document.go  Document: the one mapping of a YAML file
//	lines.go     Lines: where the keys of a YAML file are
//	decoder.go   Decoder: a YAML mapping into a struct, up to the first error
//	value.go     the values of a Decoder
//	checker.go   Checker: all errors of a YAML mapping that JSON tags describe
//	place.go     Field, Kind: places and kinds of JSON as a person writes them
//	unfit.go     Unfit: what a type would have taken instead
//	explain.go   Explain: what the JSON library stumbled on, and where
//	time.go      ParseTime, RequireTime
package strict

import (
	"errors"
	"strconv"
	"strings"
)

// FieldError reports what is wrong with a file or document, and where.
type FieldError struct {
	File  string // empty: the caller names it
	Line  int    // from 1; of a field that is missing, that of what it should be in; 0: unknown
	Field string // as in summary.pods[3].memory.rssBytes; empty: the line, or the file, as a whole
	Err   error  // what is wrong
}

// Fault returns the FieldError of a field and a text.
func Fault(field, what string) *FieldError {
	return &FieldError{Field: field,
		Err: errors.New(what)}
}

// Error returns "FILE: line N: field: what", without the parts that are not set.
func (e *FieldError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ": ")
	}
	if e.Line > 0 {
		b.WriteString("line " + strconv.Itoa(e.Line) + ": ")
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	return b.String() + e.Err.Error()
}

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }
