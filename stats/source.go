package stats

import (
	"errors"
	"fmt"
	"time"
)

// SourceStatus is how one source stands that may fail or hang on its own.
type SourceStatus struct {
	Name string
	// Time of its last good answer; zero: there was none.
	Time time.Time
	// Err is why there is none, or none younger; nil: it answers.
	Err error
	// Failures counts its errors since it was first asked.
	Failures uint64
}

// Err is the errors of all sources of a Summary, one a line.
func (s *Summary) Err() error {
	var errs []error
	for _, source := range s.Sources {
		if source.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", source.Name, source.Err))
		}
	}
	return errors.Join(errs...)
}
