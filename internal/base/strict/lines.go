package strict

import "strings"

// Lines maps the keys of a YAML file to their lines. A key is the path of names, joined by a
// separator.
type Lines map[string]int

// Nearest returns the line of a path or, if it is absent, of its nearest parent in the file; 1 if
// no parent is in the file.
func (l Lines) Nearest(path []string, separator string) int {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if line := l[strings.Join(path, separator)]; line > 0 {
			return line
		}
	}
	return 1
}
