package strict

import "strings"

// Lines are the lines of a YAML file's keys, by the names that lead to a key, joined by a
// separator.
type Lines map[string]int

// Nearest returns the line of a path or, where the file does not have it, of the nearest one above
// it; 1 where it has none of them.
func (l Lines) Nearest(path []string, separator string) int {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if line := l[strings.Join(path, separator)]; line > 0 {
			return line
		}
	}
	return 1
}
