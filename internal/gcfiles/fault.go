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

	"jettison/internal/jsonwords"
)

// fieldError is what is wrong with a field that could be read.
type fieldError struct{ field, what string }

// Error is "field: what".
func (e *fieldError) Error() string { return e.field + ": " + e.what }

func at(field, what string) error { return &fieldError{field, what} }

// faultIn says where in a file an error is.
func faultIn(path string, text []byte, err error) error {
	f := &jsonwords.Fault{File: path}
	var own *fieldError
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &own):
		f.Field, f.What = own.field, own.what
		f.Line = lineOf(text, valueAt(text, offsetOf(text, own.field)))
	case errors.As(err, &syntactic):
		f.Field, f.Line = jsonwords.Field(syntactic.JSONPointer), lineOf(text, syntactic.ByteOffset)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			f.What = "is there a second time"
		case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
			f.What = "the file ends too early: want one JSON object"
		default:
			f.What = fmt.Sprintf("not JSON: %v", syntactic.Err)
		}
	case errors.As(err, &semantic):
		f.Field, f.Line = jsonwords.Field(semantic.JSONPointer), lineOf(text, valueAt(text, semantic.ByteOffset))
		f.What = jsonwords.Unfit(semantic, reflect.TypeFor[gc]())
	default:
		f.Line, f.What = 1, err.Error()
	}
	return f
}

// lineOf is the line of a byte, from 1.
func lineOf(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(max(offset, 0), int64(len(text)))], []byte("\n"))
}

// valueAt is where the value begins that comes after what is between values; the library's offset may be that of the space before it.
func valueAt(text []byte, offset int64) int64 {
	for offset < int64(len(text)) && strings.IndexByte(" \t\r\n,:", text[offset]) >= 0 {
		offset++
	}
	return offset
}

// offsetOf is where a field begins, or else the nearest one around it.
func offsetOf(text []byte, field string) int64 {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	best, found := 0, int64(0)
	for {
		before := d.InputOffset()
		if _, err := d.ReadToken(); err != nil {
			return found
		}
		here := jsonwords.Field(d.StackPointer())
		if here == field {
			return before
		}
		if strings.HasPrefix(field, here) && len(here) > best && strings.IndexByte(".[", field[len(here)]) >= 0 {
			best, found = len(here), before
		}
	}
}
