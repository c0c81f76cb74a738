package gcfiles

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"jettison/internal/base/strict"
)

// number is a whole number from 0 to 2^63-1, as text (as in protojson) or as a number.
type number int64

// UnmarshalJSONFrom reads a number or a number as text.
func (n *number) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	t, err := d.ReadToken()
	if err != nil {
		return err
	}
	if t.Kind() != '"' && t.Kind() != '0' {
		return errors.New("want a whole number, got " + strict.Kind(t.Kind()))
	}
	v, err := strconv.ParseInt(t.String(), 10, 64)
	if err != nil || v < 0 {
		return fmt.Errorf("%.40q is not a whole number from 0 to 2^63-1", t.String())
	}
	*n = number(v)
	return nil
}

// created is a creation time in nanoseconds since 1970, at least 0. Go's zero time, which a program
// prints that does not know the time, is read as 0.
type created int64

// zeroTime is time.Time{}.UnixNano().
const zeroTime = "-6795364578871345152"

// UnmarshalJSONFrom reads a number or a number as text.
func (c *created) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	t, err := d.ReadValue()
	if err != nil {
		return err
	}
	if strings.Trim(string(t), `"`) == zeroTime {
		*c = 0
		return nil
	}
	var n number
	err = json.Unmarshal(t, &n)
	*c = created(n)
	return err
}

// attempt returns the number limited to the 32 bits of the CRI's attempt.
func (n number) attempt() uint32 { return uint32(min(n, math.MaxUint32)) }

// timestamp is an RFC 3339 time, not before 1970. Go's zero time, 0001-01-01T00:00:00Z, is unknown.
type timestamp time.Time

// UnmarshalJSONFrom reads a time.
func (t *timestamp) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	text, err := readText(d, "a time")
	if err != nil {
		return err
	}
	at, err := strict.ParseTime(text)
	if err != nil {
		return err
	}
	if at.Before(time.Unix(0, 0)) && !at.IsZero() {
		return fmt.Errorf("%.40q is before 1970", text)
	}
	*t = timestamp(at)
	return nil
}

// time returns the time; zero for nil.
func (t *timestamp) time() time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.Time(*t)
}

// duration is a duration in Go's format, such as "10m".
type duration time.Duration

// UnmarshalJSONFrom reads a duration.
func (v *duration) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	text, err := readText(d, "a duration")
	if err != nil {
		return err
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%.40q is not a duration: want a value such as 10m", text)
	}
	*v = duration(parsed)
	return nil
}

func readText(d *jsontext.Decoder, want string) (string, error) {
	t, err := d.ReadToken()
	if err != nil {
		return "", err
	}
	if t.Kind() != '"' {
		return "", fmt.Errorf("want %s as text, got %s", want, strict.Kind(t.Kind()))
	}
	return t.String(), nil
}
