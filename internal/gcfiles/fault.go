package gcfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"jettison/internal/jsonwords"
)

// Fault is what is wrong with a file, and where.
type Fault struct {
	Path  string
	Line  int    // from 1; of a field that is not there, that of what it should be in
	Field string // as in containers[3].state; empty: the file as a whole
	What  string
}

// Error is "PATH: line N: field: what".
func (f *Fault) Error() string {
	if f.Field == "" {
		return fmt.Sprintf("%s: line %d: %s", f.Path, f.Line, f.What)
	}
	return fmt.Sprintf("%s: line %d: %s: %s", f.Path, f.Line, f.Field, f.What)
}

// fieldError is what is wrong with a field that could be read.
type fieldError struct{ field, what string }

// Error is "field: what".
func (e *fieldError) Error() string { return e.field + ": " + e.what }

func at(field, what string) error { return &fieldError{field, what} }

// faultIn says where in a file an error is.
func faultIn(path string, text []byte, err error) error {
	f := &Fault{Path: path}
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
		f.What = what(semantic)
	default:
		f.Line, f.What = 1, err.Error()
	}
	return f
}

func what(e *json.SemanticError) string {
	var inner *json.SemanticError
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return "unknown field" + didYouMean(e.JSONPointer)
	case errors.As(e.Err, &inner) && inner != e && inner.Err != nil: // of a type that reads itself
		return inner.Err.Error()
	case e.Err != nil && (e.GoType == nil || e.GoType.Kind() != reflect.Int32):
		return e.Err.Error()
	case e.JSONKind == '0' && len(e.JSONValue) > 0:
		return fmt.Sprintf("%.40s is not %s", e.JSONValue, wanted(e.GoType))
	case e.JSONKind != 0 && e.GoType != nil:
		return fmt.Sprintf("want %s, got %s", wanted(e.GoType), jsonwords.Kind(e.JSONKind))
	}
	return e.Error()
}

// wanted is what a field takes, in words.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int32:
		return "a whole number of 32 bits"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
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

// didYouMean names the field of gc.json most like the unknown one that a pointer ends with.
func didYouMean(p jsontext.Pointer) string {
	t := reflect.TypeFor[gc]()
	for token := range p.Parent().Tokens() {
		switch t.Kind() {
		case reflect.Struct:
			for i := range t.NumField() {
				if f := t.Field(i); f.Tag.Get("json") == token {
					t = f.Type
					break
				}
			}
		case reflect.Slice, reflect.Map:
			t = t.Elem()
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	name := p.LastToken()
	if t.Kind() != reflect.Struct || len(name) > jsonwords.MaxKey {
		return ""
	}
	best, distance := "", len(name)/2+1
	for i := range t.NumField() {
		known := t.Field(i).Tag.Get("json")
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(known)); known != "" && d < distance {
			best, distance = known, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", best)
}
