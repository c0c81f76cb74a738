package podjson

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/internal/base/strict"
)

// Bounds of a quantity's text, the same as in package eviction. resource.ParseQuantity computes
// with as many digits as an exponent requires (1e-99990000 takes minutes), and the decoder of
// v1.Pod calls it before the object can be checked.
const (
	maxQuantityText     = 100
	maxQuantityExponent = 1000
)

// ParseQuantity reads a quantity of a pod. It rejects negative values, and values that are slow to
// parse or to add.
func ParseQuantity(text string) (resource.Quantity, error) {
	none := resource.Quantity{}
	if len(text) > maxQuantityText {
		return none, fmt.Errorf("quantity %.40q...: longer than %d characters", text, maxQuantityText)
	}
	if i := strings.LastIndexAny(text, "eE"); i >= 0 {
		n, err := strconv.Atoi(text[i+1:])
		if errors.Is(err, strconv.ErrRange) || err == nil &&
			(n > maxQuantityExponent || n < -maxQuantityExponent) {
			return none, fmt.Errorf("quantity %q: the exponent is not between -%d and %d", text,
				maxQuantityExponent, maxQuantityExponent)
		}
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return none, fmt.Errorf("want a quantity, got %q", text)
	}
	if q.Sign() < 0 {
		return none, fmt.Errorf("quantity %q is negative", text)
	}
	return q, nil
}

// ReadQuantity reads a quantity of a pod from JSON, a text or a number; null is zero.
func ReadQuantity(d *jsontext.Decoder, out *resource.Quantity) error {
	t, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch t.Kind() {
	case 'n':
		*out = resource.Quantity{}
		return nil
	case '"', '0':
		*out, err = ParseQuantity(t.String())
		return err
	}
	return fmt.Errorf("want a quantity, got %s", strict.Kind(t.Kind()))
}
