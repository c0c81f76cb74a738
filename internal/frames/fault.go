package frames

import (
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

// Fault is what is wrong with a frame, and where.
type Fault struct {
	Name  string // of the file
	Line  int    // from 1
	Field string // as in summary.pods[3].memory.rssBytes; empty: the line as a whole
	What  string
}

// Error is "FILE: line N: field: what".
func (f *Fault) Error() string {
	if f.Field == "" {
		return fmt.Sprintf("%s: line %d: %s", f.Name, f.Line, f.What)
	}
	return fmt.Sprintf("%s: line %d: %s: %s", f.Name, f.Line, f.Field, f.What)
}

// explain says which field of a frame the library stumbled on, and why. cut: the line is the file's last and has no end.
func explain(err error, cut bool) (field, what string) {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntactic):
		field = jsonwords.Field(syntactic.JSONPointer)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return field, "is there a second time"
		case errors.Is(err, io.ErrUnexpectedEOF) && cut:
			return field, "the file ends in the middle of this frame: it was cut off"
		case errors.Is(err, io.ErrUnexpectedEOF):
			return field, "the line ends in the middle of a frame: want one JSON object a line"
		}
		return field, fmt.Sprintf("not JSON: %v, at byte %d of the line", syntactic.Err, syntactic.ByteOffset)
	case errors.As(err, &semantic):
		return semanticFault(semantic)
	}
	return "", err.Error()
}

func semanticFault(e *json.SemanticError) (field, what string) {
	field = jsonwords.Field(e.JSONPointer)
	var inner *json.SemanticError
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return field, "unknown field" + didYouMean(nearest(e.JSONPointer))
	case errors.As(e.Err, &inner) && inner != e && inner.Err != nil: // of a type that reads itself
		return field, inner.Err.Error()
	case e.JSONKind == '0' && e.GoType != nil && isNumber(e.GoType):
		return field, fmt.Sprintf("%.40s is not %s", e.JSONValue, wanted(e.GoType))
	case e.JSONKind != 0 && e.GoType != nil && (e.Err == nil || isNumber(e.GoType)):
		return field, fmt.Sprintf("want %s, got %s", wanted(e.GoType), jsonwords.Kind(e.JSONKind))
	case e.Err != nil:
		return field, e.Err.Error()
	}
	return field, e.Error()
}

func isNumber(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64 }

// wanted is what a field takes, in words.
func wanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch k := t.Kind(); {
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k >= reflect.Uint && k <= reflect.Uint64:
		return "a whole number that is not negative"
	case isNumber(t):
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.String:
		return "text"
	case k == reflect.Slice || k == reflect.Array:
		return "a list"
	}
	return "an object"
}

// nearest is the name of a field like the unknown one that a pointer ends with; empty: none is.
func nearest(p jsontext.Pointer) string {
	t := reflect.TypeFor[Frame]()
	for token := range p.Parent().Tokens() {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Slice, reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			of := fieldTypes(t)[token]
			if of == nil {
				return ""
			}
			t = of
		default:
			return ""
		}
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return ""
	}
	known := make([]string, 0, t.NumField())
	for name := range fieldTypes(t) {
		known = append(known, name)
	}
	return closest(p.LastToken(), known)
}

// fieldTypes are the fields of a struct by their names in JSON, those of embedded structs too.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			for name, of := range fieldTypes(f.Type) {
				out[name] = of
			}
		case f.IsExported() && name != "-" && name != "":
			out[name] = f.Type
		}
	}
	return out
}

// closest is the known name most like one; empty: none is like it.
func closest(name string, known []string) string {
	if len(name) > jsonwords.MaxKey {
		return ""
	}
	best, distance := "", len(name)/2+1
	for _, candidate := range known {
		d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(candidate))
		if d < distance || d == distance && candidate < best {
			best, distance = candidate, d
		}
	}
	return best
}

func didYouMean(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", name)
}
