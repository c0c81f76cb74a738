package cgroup

import (
	"errors"
	"testing"
	"time"
)

func TestParseCPUStat(t *testing.T) {
	const base = "usage_usec 3000001\nuser_usec 2000000\nsystem_usec 1000001\n"
	const whole = base + "nice_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\nnr_bursts x\n"
	used := CPUStat{Usage: 3*time.Second + time.Microsecond, User: 2 * time.Second, System: time.Second + time.Microsecond}
	throttled := used
	throttled.Periods, throttled.ThrottledPeriods, throttled.Throttled, throttled.HasThrottling = 10, 4, 5*time.Microsecond, true
	for text, want := range map[string]CPUStat{base: used, whole: throttled} {
		var got CPUStat
		if err := ParseCPUStat([]byte(text), &got); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "usage_usec 1\nuser_usec 1\n", base + "nr_periods\n", base + "throttled_usec -1\n",
		"usage_usec 9223372036854776\nuser_usec 1\nsystem_usec 1\n"} {
		var got CPUStat
		if err := ParseCPUStat([]byte(text), &got); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: got %+v, %v", text, got, err)
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
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "max\n", "max max\n", "100000\n", "1 0\n", "max 1 2\n", "x 100000\n", "-1 100000\n", "1 9223372036854776\n"} {
		if got, err := ParseCPUMax([]byte(text)); !errors.Is(err, ErrMalformed) || got != (CPUMax{}) {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
}
