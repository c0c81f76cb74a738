// Package strict decodes YAML and JSON strictly. A field that is unknown, duplicate or of another
// type is an error with its position, the wanted type and the most similar known name.
//
//	strict.go    FieldError: an error with its position
//	document.go  Document: the one mapping of a YAML file
//	lines.go     Lines: the lines of the keys of a YAML file
//	decoder.go   Decoder: decodes a YAML mapping into a struct, up to the first error
//	value.go     the values of a Decoder
//	checker.go   Checker: all errors of a YAML mapping that JSON tags describe
//	place.go     Field, Kind: describe positions and kinds of JSON
//	mismatch.go  Mismatch: the type that was wanted instead
//	explain.go   Explain: the position and cause of an error of the JSON library
//	time.go      ParseTime, RequireTime
package strict

import (
	"errors"
	"strconv"
	"strings"
)

// FieldError is an error of a file or document, with its position.
type FieldError struct {
	File  string // empty: the caller names it
	Line  int    // from 1; for a missing field, that of its parent; 0: unknown
	Field string // such as summary.pods[3].memory.rssBytes; empty: the whole line or file
	Err   error  // the cause
}

// NewFieldError returns a FieldError of a field, with a text as cause.
func NewFieldError(field, text string) *FieldError {
	return &FieldError{Field: field,
		Err: errors.New(text)}
}

// Error returns "FILE: line N: field: cause", without the parts that are not set.
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

// Unwrap returns the cause.
func (e *FieldError) Unwrap() error { return e.Err }
