package strict

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"jettison/internal/base/nearest"
)

// Mismatch describes why a valid JSON value does not fit the type that was decoded.
func Mismatch(e *json.SemanticError, read reflect.Type) string {
	var inner *json.SemanticError
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return "unknown field" + nearest.Question(e.JSONPointer.LastToken(),
			maps.Keys(siblings(e.JSONPointer, read)))
	case errors.As(e.Err, &inner) && inner != e && inner.Err != nil: // of a type that decodes itself
		return inner.Err.Error()
	case e.JSONKind == '0' && e.GoType != nil && isNumber(e.GoType):
		return fmt.Sprintf("%.40s is not %s", e.JSONValue, DescribeType(e.GoType))
	case e.JSONKind != 0 && e.GoType != nil && (e.Err == nil || isNumber(e.GoType)):
		return fmt.Sprintf("want %s, got %s", DescribeType(e.GoType), Kind(e.JSONKind))
	case e.Err != nil:
		return e.Err.Error()
	}
	return e.Error()
}

func isNumber(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64 }

// DescribeType describes the values that a type accepts.
func DescribeType(t reflect.Type) string {
	t = elemType(t)
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

// siblings returns the known fields of the struct that contains a pointer's last token; nil if it
// is not a struct.
func siblings(p jsontext.Pointer, t reflect.Type) map[string]reflect.Type {
	for token := range p.Parent().Tokens() {
		switch t = elemType(t); t.Kind() {
		case reflect.Slice, reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			field, ok := Fields(t)[token]
			if !ok {
				return nil
			}
			t = field
		default:
			return nil
		}
	}
	if t = elemType(t); t.Kind() != reflect.Struct {
		return nil
	}
	return Fields(t)
}

func elemType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// Fields returns the fields of a struct by their JSON names, including those of embedded structs.
func Fields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			maps.Copy(out, Fields(f.Type))
		case f.IsExported() && name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}
