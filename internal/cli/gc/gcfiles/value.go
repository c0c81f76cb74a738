package gcfiles

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"jettison/internal/base/strict"
)

// number is a 64-bit whole number that is not negative, as text (protojson's way) or as a number.
type number int64

// UnmarshalJSONFrom reads one.
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

// attempt is the number within the 32 bits that the CRI has for it.
func (n number) attempt() uint32 { return uint32(min(n, math.MaxUint32)) }

// timestamp is a time as RFC 3339 has it, from 1970 on.
type timestamp time.Time

// UnmarshalJSONFrom reads one.
func (t *timestamp) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	text, err := readText(d, "a time")
	if err != nil {
		return err
	}
	at, err := strict.ParseTime(text)
	if err != nil {
		return err
	}
	if at.Before(time.Unix(0, 0)) {
		return fmt.Errorf("%.40q is before 1970", text)
	}
	*t = timestamp(at)
	return nil
}

// time is zero where there is none.
func (t *timestamp) time() time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.Time(*t)
}

// duration is one as Go writes it, "10m".
type duration time.Duration

// UnmarshalJSONFrom reads one.
func (v *duration) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	text, err := readText(d, "a duration")
	if err != nil {
		return err
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%.40q is no duration, as in 10m", text)
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
