package cgroup

import (
	"fmt"
	"math"
	"time"
)

// ParseUint parses a decimal number that fills b except for one trailing newline, as in
// memory.current. It does not allocate unless it fails.
func ParseUint(b []byte) (uint64, error) {
	v, ok := Decimal(chomp(b))
	if !ok {
		return 0, fmt.Errorf("%w: %.40q is not a number", ErrMalformed, string(b))
	}
	return v, nil
}

// Decimal parses a decimal number that fills b: digits only, no sign, no space. ok is false if
// b is empty, contains other characters or exceeds 64 bits.
func Decimal(b []byte) (v uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for i, c := range b {
		d := uint64(c - '0')
		// 19 digits always fit, so most numbers need no division
		if d > 9 || i >= 19 && v > (math.MaxUint64-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

// Limit is the value of a control file that may be "max".
type Limit struct {
	Bytes     uint64 // 0 if Unlimited. For pids.max it is a number of tasks.
	Unlimited bool   // "max"
}

// ParseLimit parses a number or "max", as in memory.max and pids.max.
func ParseLimit(b []byte) (Limit, error) {
	if string(chomp(b)) == "max" {
		return Limit{Unlimited: true}, nil
	}
	v, err := ParseUint(b)
	return Limit{Bytes: v}, err
}

// nextPair splits off the first line of b, at its first space. A line without a space is a key
// without a value.
func nextPair(b []byte) (key, value, rest []byte) {
	line, rest := cut(b, '\n')
	key, value = cut(line, ' ')
	return key, value, rest
}

// cut is bytes.Cut for short prefixes: keys and numbers are so short that a plain loop is faster
// than a vectorized search.
func cut(b []byte, sep byte) (before, after []byte) {
	for i, c := range b {
		if c == sep {
			return b[:i], b[i+1:]
		}
	}
	return b, nil
}

// store parses the value of a known key. The error contains copies, so that the caller's buffer
// does not escape to the heap.
func store(dst *uint64, key, value []byte) error {
	v, ok := Decimal(value)
	if !ok {
		return fmt.Errorf("%w: value of %.40q is %.40q, not a number", ErrMalformed, string(key),
			string(value))
	}
	*dst = v
	return nil
}

// missing returns the error for a file that lacks one of the keys, which every kernel with cgroup
// v2 writes.
func missing(keys string) error { return fmt.Errorf("%w: missing one of %s", ErrMalformed, keys) }

// microseconds converts a kernel counter to a Duration; a value that does not fit (292 years)
// is an error.
func microseconds(v uint64) (time.Duration, error) {
	if v > math.MaxInt64/uint64(time.Microsecond) {
		return 0, fmt.Errorf("%w: %d µs is out of range", ErrMalformed, v)
	}
	return time.Duration(v) * time.Microsecond, nil
}

// chomp removes one newline from the end.
func chomp(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		return b[:n-1]
	}
	return b
}
