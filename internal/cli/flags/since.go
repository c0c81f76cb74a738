package flags

import (
	"fmt"
	"time"

	"jettison/internal/base/commandline"
)

// ParseSince returns the time that --since names: a time, or a duration before now; empty: the zero
// time.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, commandline.Usage(
			fmt.Errorf("--since %.40q: want a time with its zone (2026-11-21T07:00:00Z), or how long ago (36h)", text))
	}
	return at, nil
}
