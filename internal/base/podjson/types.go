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

// misplaced is the error of a field, as in spec.containers[0].image, with where it is in the text.
type misplaced struct {
	*strict.FieldError
	path []string // .KEY and [N]
	end  int64    // bytes of JSON up to where the value, or its first token, ends
}

// Unwrap returns the error of the field.
func (e *misplaced) Unwrap() error { return e.FieldError }

// wrong makes one of what stands where the walk has come to.
func (g *guarding) wrong(cause error) error {
	field := &strict.FieldError{Field: cmp.Or(g.at(), "the pod"), Err: cause}
	return &misplaced{FieldError: field, path: slices.Clone(g.path), end: g.dec.InputOffset()}
}

// Line is where in a text, JSON or YAML, the field is that an error of Asking is about, from 1; 0:
// it is about none, or that is not known.
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
		case yaml.MappingNode: // keys and values by turns
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

// special are types with code of their own, which is asked about text and numbers, and what it
// takes.
var special = map[reflect.Type]string{
	quantity:                            "a quantity",
	reflect.TypeFor[metav1.Time]():      "a time, as 2006-01-02T15:04:05Z",
	reflect.TypeFor[metav1.MicroTime](): "a time, as 2006-01-02T15:04:05.000000Z",
	reflect.TypeFor[intstr.IntOrString](): fmt.Sprintf("%s, or text",
		strict.Wanted(reflect.TypeFor[int32]())),
}

// fits refuses a token with which no value of a type begins. The decoder would, too, in words about
// Go.
func (g *guarding) fits(t reflect.Type, tok json.Token) error {
	if t == nil || tok == nil {
		return nil
	}
	var ok bool
	want := special[t]
	switch {
	case t == quantity: // text and numbers see text
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
		want, ok = strict.Wanted(t), begins(t, tok)
	}
	if ok {
		return nil
	}
	return g.wrong(fmt.Errorf("want %s, got %s", want, got(tok)))
}

// begins reports whether a value of a type may begin with a token.
func begins(t reflect.Type, tok json.Token) bool {
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

// got is what stands in a place.
func got(tok json.Token) string {
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
