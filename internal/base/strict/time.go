package strict

import (
	"errors"
	"fmt"
	"time"
)

// ParseTime parses a time in the format of RFC 3339.
func ParseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q is not an RFC 3339 time such as 2026-01-02T15:04:05Z", text)
	}
	return at, nil
}

// RequireTime parses the time of a required field, from 1970 on.
func RequireTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, errors.New("missing")
	}
	at, err := ParseTime(text)
	if err == nil && at.Year() < 1970 {
		err = errors.New(text + " is before 1970")
	}
	return at, err
}
