// Package nearest finds the known name that is most like one with a typing error, for "did you mean".
package nearest

import (
	"fmt"
	"iter"
	"strings"

	"github.com/agnivade/levenshtein"
)

// mostName is the longest name that is compared, in bytes: names come from outside, and the time grows with both lengths.
const mostName = 64

// Name is the known name most like one: at most half of its letters are others, whatever their case. Empty: none is like it. Of two that
// are as near it is the first by the alphabet.
func Name(name string, known iter.Seq[string]) string {
	if len(name) > mostName {
		return ""
	}
	best, distance := "", len(name)/2+1
	for candidate := range known {
		d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(candidate))
		if d < distance || d == distance && candidate < best {
			best, distance = candidate, d
		}
	}
	return best
}

// Question is what an error about an unknown name ends with: `: did you mean "x"?`, or nothing if no known name is like it.
func Question(name string, known iter.Seq[string]) string {
	if best := Name(name, known); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ""
}
