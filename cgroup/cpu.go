package cgroup

import (
	"fmt"
	"time"
)

// CPUStat is cpu.stat: what a group and all below it used since it was made (v6.12 kernel/cgroup/rstat.c,
// cgroup_base_stat_cputime_show; kernel/sched/core.c, cpu_extra_stat_show). Times are of one CPU: two busy CPUs use two
// seconds a second.
type CPUStat struct {
	Usage, User, System time.Duration

	// What cpu.max did. Without the cpu controller the file does not say: then HasThrottling is false and these are 0.
	Throttled        time.Duration // over all CPUs that were held back
	Periods          uint64        // periods of cpu.max with something to run
	ThrottledPeriods uint64        // those of them in which it was held back
	HasThrottling    bool
}

// ParseCPUStat reads cpu.stat. usage_usec, user_usec and system_usec must be there. It does not allocate.
func ParseCPUStat(b []byte, out *CPUStat) error {
	*out = CPUStat{}
	const base, throttling = 1 | 2 | 4, 8 | 16 | 32
	seen := 0
	for len(b) > 0 {
		var key, value []byte
		key, value, b = nextPair(b)
		var err error
		switch string(key) {
		case "usage_usec":
			seen, err = seen|1, storeTime(&out.Usage, key, value)
		case "user_usec":
			seen, err = seen|2, storeTime(&out.User, key, value)
		case "system_usec":
			seen, err = seen|4, storeTime(&out.System, key, value)
		case "nr_periods":
			seen, err = seen|8, store(&out.Periods, key, value)
		case "nr_throttled":
			seen, err = seen|16, store(&out.ThrottledPeriods, key, value)
		case "throttled_usec":
			seen, err = seen|32, storeTime(&out.Throttled, key, value)
		}
		if err != nil {
			return err
		}
	}
	if seen&base != base {
		return missing("usage_usec, user_usec, system_usec")
	}
	out.HasThrottling = seen&throttling == throttling
	return nil
}

// storeTime reads the value of a known key that is a time in microseconds.
func storeTime(dst *time.Duration, key, value []byte) error {
	var v uint64
	err := store(&v, key, value)
	if err == nil {
		*dst, err = microseconds(v)
	}
	return err
}

// CPUStat reads cpu.stat into out. Every cgroup has it, the root included.
func (g *Group) CPUStat(buf []byte, out *CPUStat) error {
	b, err := g.readKept(cpuStat, buf)
	if err != nil {
		return err
	}
	if err := ParseCPUStat(b, out); err != nil {
		return g.parseError("cpu.stat", err)
	}
	return nil
}

// CPUWeight reads cpu.weight: the group's share among its siblings, 1 to 10000, 100 if nobody set it; 0 for an idle group
// (cpu.idle). The root cgroup has none.
func (g *Group) CPUWeight(buf []byte) (uint64, error) { return g.number("cpu.weight", buf) }

// CPUMax is cpu.max: how much of one CPU's time the group may use in each period.
type CPUMax struct {
	Quota     time.Duration // may be longer than Period: several CPUs. 0 where Unlimited
	Period    time.Duration
	Unlimited bool // "max"
}

// ParseCPUMax reads cpu.max: "QUOTA PERIOD" in microseconds, the quota or "max" (v6.12 kernel/sched/core.c,
// cpu_period_quota_print).
func ParseCPUMax(b []byte) (CPUMax, error) {
	quota, period := cut(chomp(b), ' ')
	var m CPUMax
	err := storeTime(&m.Period, []byte("period"), period)
	switch {
	case err != nil:
	case m.Period == 0:
		err = fmt.Errorf("%w: a period of 0", ErrMalformed)
	case string(quota) == "max":
		m.Unlimited = true
	default:
		err = storeTime(&m.Quota, []byte("quota"), quota)
	}
	if err != nil {
		return CPUMax{}, err
	}
	return m, nil
}

// CPUMax reads cpu.max. The root cgroup has none.
func (g *Group) CPUMax(buf []byte) (CPUMax, error) {
	b, err := g.read("cpu.max", buf)
	if err != nil {
		return CPUMax{}, err
	}
	m, err := ParseCPUMax(b)
	if err != nil {
		return CPUMax{}, g.parseError("cpu.max", err)
	}
	return m, nil
}
