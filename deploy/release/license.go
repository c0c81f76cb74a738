package main

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the licences of linked modules. They permit distribution of a binary under Apache-2.0
// with the text of the licence. Other licences need a decision, which adds them here.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// minMatch is the percentage of a licence file's words that must be of known licences.
const minMatch = 75

// licensesOf returns the SPDX identifiers of the licences in a module's files.
func licensesOf(files []licenseFile) ([]string, error) {
	found := map[string]bool{}
	for _, f := range files {
		if strings.HasPrefix(strings.ToLower(path.Base(f.name)), "notice") {
			continue // names authors
		}
		scan := licensecheck.Scan([]byte(f.text))
		if scan.Percent < minMatch {
			return nil, fmt.Errorf("%s: %.0f %% of the text is of known licences, want at least %d %%",
				f.name, scan.Percent, minMatch)
		}
		for _, m := range scan.Match {
			if m.IsURL {
				continue
			}
			if !slices.Contains(allowed, m.ID) {
				return nil, fmt.Errorf("%s: licence %s is not allowed, want one of %v", f.name, m.ID, allowed)
			}
			found[m.ID] = true
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no licence file")
	}
	return slices.Sorted(maps.Keys(found)), nil
}
