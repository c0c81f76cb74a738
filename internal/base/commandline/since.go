package commandline

import (
	"fmt"
	"time"
)

// ParseSince parses the value of --since: an RFC 3339 time, or a duration before now. It returns
// the zero time for empty text.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, Usage(
			fmt.Errorf("--since %.40q: want a time with a zone (2026-11-21T07:00:00Z) or an age (36h)", text))
	}
	return at, nil
}
