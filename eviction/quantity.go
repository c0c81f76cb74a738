package eviction

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of a quantity's text. resource.ParseQuantity computes with as many digits as the exponent
// requires: 1e-99990000 keeps it busy for minutes.
const (
	maxQuantityText     = 100
	maxQuantityExponent = 1000
)

// whole returns a quantity as a number, rounded up, at least 0 and at most MaxInt64. Quantity.Value
// returns 0 for 100E, and arbitrary values for larger quantities. Such a threshold would never be
// met although it always is, and every pod would exceed such a limit.
func whole(q *resource.Quantity) uint64 {
	if n, ok := q.AsInt64(); ok {
		return uint64(max(n, 0))
	}
	if q.Cmp(*resource.NewQuantity(math.MaxInt64, resource.DecimalSI)) > 0 {
		return math.MaxInt64
	}
	return uint64(max(q.Value(), 0))
}

// parseQuantity is resource.ParseQuantity for untrusted text.
func parseQuantity(text string) (resource.Quantity, error) {
	if len(text) > maxQuantityText {
		return resource.Quantity{}, fmt.Errorf("quantity %.40q...: longer than %d characters", text,
			maxQuantityText)
	}
	if i := strings.LastIndexAny(text, "eE"); i >= 0 {
		n, err := strconv.Atoi(text[i+1:])
		if errors.Is(err, strconv.ErrRange) || err == nil &&
			(n > maxQuantityExponent || n < -maxQuantityExponent) {
			return resource.Quantity{}, fmt.Errorf("quantity %q: the exponent is not between -%d and %d",
				text, maxQuantityExponent, maxQuantityExponent)
		}
	}
	return resource.ParseQuantity(text)
}
