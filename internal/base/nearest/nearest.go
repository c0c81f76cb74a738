// Package nearest finds the known name that is most similar to a mistyped one, for "did you mean".
package nearest

import (
	"fmt"
	"iter"
	"strings"

	"github.com/agnivade/levenshtein"
)

// maxName bounds the length of compared names in bytes: names come from outside, and the time grows
// with both lengths.
const maxName = 64

// minPrefix is the shortest prefix, in bytes, that identifies a name.
const minPrefix = 2

// Name returns the known name most similar to name, ignoring case: the shortest that begins with
// name, because it may be incomplete; otherwise one that differs in at most half of the letters.
// Empty: no known name is similar. Of equally similar names it returns the alphabetically first.
func Name(name string, known iter.Seq[string]) string {
	if len(name) > maxName {
		return ""
	}
	name = strings.ToLower(name)
	best, distance, isPrefix := "", len(name)/2+1, false
	for candidate := range known {
		lower := strings.ToLower(candidate)
		d, prefix := levenshtein.ComputeDistance(name, lower), len(name) >= minPrefix &&
			strings.HasPrefix(lower, name)
		switch {
		case prefix && !isPrefix, prefix == isPrefix && d < distance, prefix == isPrefix && d == distance &&
			candidate < best:
			best, distance, isPrefix = candidate, d, prefix
		}
	}
	return best
}

// Question returns the end of an error about an unknown name: `: did you mean "x"?`, or an empty
// text if no known name is similar.
func Question(name string, known iter.Seq[string]) string {
	if best := Name(name, known); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ""
}
