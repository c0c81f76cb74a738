package cgroup

import (
	"bytes"
	"fmt"
	"math"
)

// parseUint reads a decimal number that fills b but for one trailing newline.
func parseUint(b []byte) (uint64, error) {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	v, ok := decimal(b)
	if !ok {
		return 0, fmt.Errorf("%w: %.40q is not a number", ErrMalformed, b)
	}
	return v, nil
}

func decimal(b []byte) (v uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || v > (math.MaxUint64-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

// Limit is the value of a control file that may say "max".
type Limit struct {
	Bytes     uint64 // 0 where Unlimited
	Unlimited bool   // "max"
}

// ParseLimit reads memory.max, memory.high and their kind: a number or "max".
func ParseLimit(b []byte) (Limit, error) {
	if string(bytes.TrimSuffix(b, []byte("\n"))) == "max" {
		return Limit{Unlimited: true}, nil
	}
	v, err := parseUint(b)
	return Limit{Bytes: v}, err
}

// keyValues goes through lines of "key value" (flat keyed, Documentation/admin-guide/cgroup-v2.rst). For a key that want
// knows, it hands out where to store the value; other keys are skipped, whatever their value: kernels add some. A known
// key without a number is malformed.
func keyValues(b []byte, want func(key []byte) *uint64) error {
	for len(b) > 0 {
		line := b
		if end := bytes.IndexByte(b, '\n'); end >= 0 {
			line, b = b[:end], b[end+1:]
		} else {
			b = nil
		}
		space := bytes.IndexByte(line, ' ')
		if space < 0 {
			if want(line) != nil {
				return fmt.Errorf("%w: %.40q has no value", ErrMalformed, line)
			}
			continue
		}
		dst := want(line[:space])
		if dst == nil {
			continue
		}
		v, ok := decimal(line[space+1:])
		if !ok {
			return fmt.Errorf("%w: line %.60q", ErrMalformed, line)
		}
		*dst = v
	}
	return nil
}
