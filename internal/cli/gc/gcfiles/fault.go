package gcfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"jettison/internal/base/strict"
)

// faultIn adds file, line and field to an error.
func faultIn(path string, text []byte, err error) error {
	var own *strict.FieldError
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &own):
		own.File, own.Line = path, lineOf(text, valueAt(text, offsetOf(text, own.Field)))
		return own
	case errors.As(err, &syntactic):
		return &strict.FieldError{File: path, Line: lineOf(text, syntactic.ByteOffset),
			Field: strict.Field(syntactic.JSONPointer), Err: notJSON(err, syntactic)}
	case errors.As(err, &semantic):
		return &strict.FieldError{File: path, Line: lineOf(text, valueAt(text, semantic.ByteOffset)),
			Field: strict.Field(semantic.JSONPointer),
			Err:   errors.New(strict.Mismatch(semantic, reflect.TypeFor[gc]()))}
	}
	return &strict.FieldError{File: path, Line: 1, Err: err}
}

// notJSON describes a syntax error.
func notJSON(err error, syntactic *jsontext.SyntacticError) error {
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return errors.New("duplicate field")
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return errors.New("the file ends too early: want one JSON object")
	}
	return fmt.Errorf("not JSON: %v", syntactic.Err)
}

// lineOf returns the line of a byte offset, from 1.
func lineOf(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(max(offset, 0), int64(len(text)))], []byte("\n"))
}

// valueAt returns the offset of the next value, because the library's offset may point at the
// separators before it.
func valueAt(text []byte, offset int64) int64 {
	for offset < int64(len(text)) && strings.IndexByte(" \t\r\n,:", text[offset]) >= 0 {
		offset++
	}
	return offset
}

// offsetOf returns the offset of a field, or of the innermost enclosing one that exists.
func offsetOf(text []byte, field string) int64 {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	best, found := 0, int64(0)
	for {
		before := d.InputOffset()
		if _, err := d.ReadToken(); err != nil {
			return found
		}
		here := strict.Field(d.StackPointer())
		if here == field {
			return before
		}
		if strings.HasPrefix(field, here) && len(here) > best &&
			strings.IndexByte(".[", field[len(here)]) >= 0 {
			best, found = len(here), before
		}
	}
}
