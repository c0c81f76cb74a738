package frames

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/base/podjson"
	"jettison/internal/base/strict"
)

// JSON options of frames. The library (encoding/json/v2 before it is the default) reads twice as
// fast as encoding/json, rejects duplicate keys, reports the position of an error, and keeps the
// pods' time stamps complete: the API's encoding truncates to seconds, and two looks within one
// second would be equal.
var (
	reading = json.JoinOptions(json.RejectUnknownMembers(true),
		json.WithUnmarshalers(json.JoinUnmarshalers(
			json.UnmarshalFromFunc(readTime),
			json.UnmarshalFromFunc(podjson.ReadQuantity),
		)))
	// Names given by tenants, for example of volumes, may be invalid UTF-8, which is replaced.
	writing = json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true),
		json.WithMarshalers(json.MarshalToFunc(writeTime)))
)

// readingImpossible reads a frame whose Summary has numbers that do not fit their fields: negative
// ones, or ones of 2^64 and more. They become implausible ones, which removeImplausible removes. It
// is slower than reading.
var readingImpossible = json.JoinOptions(reading, json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, out *uint64) error {
		return readImpossible(d, out, math.MaxUint64)
	}),
	json.UnmarshalFromFunc(func(d *jsontext.Decoder, out *int64) error {
		return readImpossible(d, out, -1)
	}),
	json.UnmarshalFromFunc(readTime),
	json.UnmarshalFromFunc(podjson.ReadQuantity),
)))

// readImpossible reads a number. One that does not fit becomes implausible if it is in a Summary.
func readImpossible[T uint64 | int64](d *jsontext.Decoder, out *T, implausible T) error {
	if pointer := d.StackPointer(); d.PeekKind() != '0' || !inSummary(pointer) {
		return errors.ErrUnsupported
	}
	text, err := d.ReadValue()
	if err != nil {
		return err
	}
	if err = json.Unmarshal(text, out); err != nil && isImpossible(text) {
		*out, err = implausible, nil
	}
	return err
}

// inSummary reports whether a field of a frame belongs to a Summary.
func inSummary(p jsontext.Pointer) bool {
	return strings.HasPrefix(string(p), "/summary/") || strings.HasPrefix(string(p), "/afterReclaim/")
}

// isImpossible reports whether a number is negative or at least 2^64.
func isImpossible(text []byte) bool {
	v, err := strconv.ParseFloat(string(text), 64)
	return err == nil && (v < 0 || v >= 1<<64) || errors.Is(err, strconv.ErrRange)
}

// readTime reads a time of the API; null is the zero time.
func readTime(d *jsontext.Decoder, out *metav1.Time) error {
	text, err := readText(d, "a time")
	if err != nil || text == "" {
		*out = metav1.Time{}
		return err
	}
	at, err := strict.ParseTime(text)
	*out = metav1.Time{Time: at}
	return err
}

func writeTime(e *jsontext.Encoder, t metav1.Time) error {
	if t.IsZero() || t.Year() < 0 || t.Year() > 9999 { // RFC 3339 has no such year
		return e.WriteToken(jsontext.Null)
	}
	return e.WriteToken(jsontext.String(t.UTC().Format(time.RFC3339Nano)))
}

// readText reads a string; null is the empty string.
func readText(d *jsontext.Decoder, want string) (string, error) {
	t, err := d.ReadToken()
	switch {
	case err != nil:
		return "", err
	case t.Kind() == 'n':
		return "", nil
	case t.Kind() != '"':
		return "", fmt.Errorf("want %s, got %s", want, strict.Kind(t.Kind()))
	}
	text := t.String()
	if text == "" {
		return "", fmt.Errorf("want %s, got an empty text", want)
	}
	return text, nil
}

// UnmarshalJSONFrom reads an object with both bounds, or a number.
func (r *Range) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '0' {
		var v uint64
		if err := json.UnmarshalDecode(d, &v); err != nil {
			return err
		}
		*r = Range{v, v}
		return nil
	}
	both := struct {
		Min *uint64 `json:"min"`
		Max *uint64 `json:"max"`
	}{}
	if err := json.UnmarshalDecode(d, &both); err != nil {
		return err
	}
	if both.Min == nil || both.Max == nil || *both.Min > *both.Max {
		return errors.New("want a number, or min and max with min not above max")
	}
	*r = Range{*both.Min, *both.Max}
	return nil
}

// MarshalJSONTo writes the form that UnmarshalJSONFrom reads.
func (r *Range) MarshalJSONTo(e *jsontext.Encoder) error {
	if r.Min == r.Max {
		return e.WriteToken(jsontext.Uint(r.Min))
	}
	return json.MarshalEncode(e, &struct {
		Min uint64 `json:"min"`
		Max uint64 `json:"max"`
	}{r.Min, r.Max})
}

// maxPlausible is the largest plausible number.
const maxPlausible = math.MaxInt64
