package cgroup

import (
	"errors"
	"testing"
	"time"
)

func TestParseCPUUsage(t *testing.T) {
	const base = "usage_usec 3000001\nuser_usec 2000000\nsystem_usec 1000001\n"
	for _, text := range []string{base, base + "nice_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\nnr_bursts x\n", "first 1\n" + base} {
		if got, err := parseCPUUsage([]byte(text)); err != nil || got != 3*time.Second+time.Microsecond {
			t.Errorf("parseCPUUsage of %q returned %v with error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "user_usec 1\nsystem_usec 1\n", "usage_usec\n", "usage_usec -1\n", "usage_usec 9223372036854776\nuser_usec 1\n"} {
		if got, err := parseCPUUsage([]byte(text)); !errors.Is(err, ErrMalformed) || got != 0 {
			t.Errorf("parseCPUUsage of malformed %q = %v, error %v, want ErrMalformed", text, got, err)
		}
	}
}

func TestParseCPUMax(t *testing.T) {
	for text, want := range map[string]CPUMax{
		"max 100000\n":   {Period: 100 * time.Millisecond, Unlimited: true},
		"20000 100000":   {Quota: 20 * time.Millisecond, Period: 100 * time.Millisecond},
		"400000 50000\n": {Quota: 400 * time.Millisecond, Period: 50 * time.Millisecond},
	} {
		if got, err := ParseCPUMax([]byte(text)); err != nil || got != want {
			t.Errorf("ParseCPUMax of %q returned %+v with error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "max\n", "max max\n", "100000\n", "1 0\n", "max 1 2\n", "x 100000\n", "-1 100000\n", "1 9223372036854776\n"} {
		if got, err := ParseCPUMax([]byte(text)); !errors.Is(err, ErrMalformed) || got != (CPUMax{}) {
			t.Errorf("ParseCPUMax of malformed %q = %+v, error %v, want ErrMalformed", text, got, err)
		}
	}
}
