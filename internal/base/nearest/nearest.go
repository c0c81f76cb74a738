// Package nearest finds the known name that is most like one with a typing error, for "did you
// mean".
package nearest

import (
	"fmt"
	"iter"
	"strings"

	"github.com/agnivade/levenshtein"
)

// mostName is the longest name that is compared, in bytes: names come from outside, and the time
// grows with both lengths.
const mostName = 64

// leastBegin is how many letters tell what a name begins with, in bytes.
const leastBegin = 2

// Name is the known name most like one, whatever their case: the shortest that begins with it, for
// that is one which was not written to its end; else the one of which at most half of the letters
// are others. Empty: none is like it. Of two that are as near it is the first by the alphabet.
func Name(name string, known iter.Seq[string]) string {
	if len(name) > mostName {
		return ""
	}
	name = strings.ToLower(name)
	best, distance, begins := "", len(name)/2+1, false
	for candidate := range known {
		lower := strings.ToLower(candidate)
		d, begun := levenshtein.ComputeDistance(name, lower), len(name) >= leastBegin &&
			strings.HasPrefix(lower, name)
		switch {
		case begun && !begins, begun == begins && d < distance, begun == begins && d == distance &&
			candidate < best:
			best, distance, begins = candidate, d, begun
		}
	}
	return best
}

// Question is what an error about an unknown name ends with: `: did you mean "x"?`, or nothing if
// no known name is like it.
func Question(name string, known iter.Seq[string]) string {
	if best := Name(name, known); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ""
}
