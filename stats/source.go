package stats

import (
	"errors"
	"fmt"
	"time"
)

// SourceStatus is the state of one source that may fail or hang independently.
type SourceStatus struct {
	Name string
	// Time of the last good answer; zero: no answer yet.
	Time time.Time
	// Err explains why there is no answer or no recent one; nil: the source answers.
	Err error
	// Failures counts the errors of the source since the start.
	Failures uint64
}

// Err returns the errors of all sources of a Summary, one per line.
func (s *Summary) Err() error {
	var errs []error
	for _, source := range s.Sources {
		if source.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", source.Name, source.Err))
		}
	}
	return errors.Join(errs...)
}
