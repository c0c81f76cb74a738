package podjson

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"jettison/internal/base/strict"
)

// misplaced is the error of a field, such as spec.containers[0].image, with its position in the
// text.
type misplaced struct {
	*strict.FieldError
	path []string // .KEY and [N]
	end  int64    // offset in the JSON of the end of the value, or of its first token
}

// Unwrap returns the error of the field.
func (e *misplaced) Unwrap() error { return e.FieldError }

// wrongValue returns an error for the current field.
func (g *guarding) wrongValue(cause error) error {
	field := &strict.FieldError{Field: cmp.Or(g.at(), "the pod"), Err: cause}
	return &misplaced{FieldError: field, path: slices.Clone(g.path), end: g.dec.InputOffset()}
}

// Line returns the line, from 1, of the field that an error of DecodeForAdmission is about, in JSON
// or YAML text; 0: unknown, or no field.
func Line(text []byte, err error) int {
	var e *misplaced
	if !errors.As(err, &e) {
		return 0
	}
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return 1 + bytes.Count(text[:min(e.end, int64(len(text)))], []byte("\n"))
	}
	pod, _, err := document(text)
	if err != nil {
		return 0
	}
	n := pod.Content[0]
	line := n.Line
	for _, step := range e.path {
		at := -1
		switch n.Kind {
		case yaml.MappingNode: // keys and values alternate
			for i := 0; i+1 < len(n.Content) && at < 0; i += 2 {
				if "."+n.Content[i].Value == step {
					line, at = n.Content[i].Line, i+1
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(strings.Trim(step, "[]")); err == nil && i < len(n.Content) {
				line, at = n.Content[i].Line, i
			}
		}
		if at < 0 {
			break
		}
		n = n.Content[at]
	}
	return line
}

// special are types that decode text and numbers themselves, with their descriptions.
var special = map[reflect.Type]string{
	quantity:                            "a quantity",
	reflect.TypeFor[metav1.Time]():      "a time such as 2006-01-02T15:04:05Z",
	reflect.TypeFor[metav1.MicroTime](): "a time such as 2006-01-02T15:04:05.000000Z",
	reflect.TypeFor[intstr.IntOrString](): fmt.Sprintf("%s, or text",
		strict.DescribeType(reflect.TypeFor[int32]())),
}

// checkToken returns an error for a token that cannot begin a value of type t. The decoder's own
// error would name Go types.
func (g *guarding) checkToken(t reflect.Type, tok json.Token) error {
	if t == nil || tok == nil {
		return nil
	}
	var ok bool
	want := special[t]
	switch {
	case t == quantity: // method text checks text and numbers
		_, delim := tok.(json.Delim)
		_, is := tok.(bool)
		ok = !delim && !is
	case want != "":
		raw, err := json.Marshal(tok)
		v, is := reflect.New(t).Interface().(json.Unmarshaler)
		_, delim := tok.(json.Delim)
		ok = !delim && err == nil && is && v.UnmarshalJSON(raw) == nil
	case reflect.PointerTo(t).Implements(unmarshaler):
		ok = true
	default:
		want, ok = strict.DescribeType(t), canBegin(t, tok)
	}
	if ok {
		return nil
	}
	return g.wrongValue(fmt.Errorf("want %s, got %s", want, describeToken(tok)))
}

// canBegin reports whether a value of a type may begin with a token.
func canBegin(t reflect.Type, tok json.Token) bool {
	switch tok := tok.(type) {
	case json.Delim:
		return tok == '{' && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map) || tok == '[' &&
			t.Kind() == reflect.Slice
	case string:
		return t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
	case bool:
		return t.Kind() == reflect.Bool
	case json.Number:
		var err error
		switch {
		case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
			_, err = strconv.ParseInt(string(tok), 10, t.Bits())
		case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
			_, err = strconv.ParseUint(string(tok), 10, t.Bits())
		default:
			return t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64
		}
		return err == nil
	}
	return true
}

// describeToken describes a token for an error.
func describeToken(tok json.Token) string {
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '{' {
			return "an object"
		}
		return "a list"
	case string:
		if len(tok) > strict.MaxKey {
			return fmt.Sprintf("%.*q...", strict.MaxKey, tok)
		}
		return strconv.Quote(tok)
	}
	return fmt.Sprintf("%.*s", strict.MaxKey, fmt.Sprint(tok))
}
