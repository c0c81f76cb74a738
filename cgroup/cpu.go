package cgroup

import (
	"fmt"
	"time"
)

// parseCPUUsage parses usage_usec of cpu.stat, and returns an error if that is missing (v6.12
// kernel/cgroup/rstat.c, cgroup_base_stat_cputime_show). It does not allocate.
func parseCPUUsage(b []byte) (usage time.Duration, err error) {
	for len(b) > 0 {
		var key, value []byte
		if key, value, b = nextPair(b); string(key) == "usage_usec" {
			err = storeTime(&usage, key, value)
			return usage, err
		}
	}
	return 0, missing("usage_usec")
}

// storeTime parses the value of a known key that is a time in microseconds.
func storeTime(dst *time.Duration, key, value []byte) error {
	var v uint64
	err := store(&v, key, value)
	if err == nil {
		*dst, err = microseconds(v)
	}
	return err
}

// CPUUsage reads from cpu.stat the CPU time used by the group and its descendants since it was
// created, as time of one CPU: two busy CPUs use two seconds per second. Every cgroup has the file,
// including the root.
func (g *Group) CPUUsage(buf []byte) (time.Duration, error) {
	b, err := g.readKept(fileCPUStat, buf)
	if err != nil {
		return 0, err
	}
	usage, err := parseCPUUsage(b)
	if err != nil {
		return 0, g.parseError("cpu.stat", err)
	}
	return usage, nil
}

// CPUWeight reads cpu.weight: the group's share among its siblings, 1 to 10000, 100 if it was
// never set; 0 for an idle group (cpu.idle). The root cgroup has no cpu.weight.
func (g *Group) CPUWeight(buf []byte) (uint64, error) { return g.number("cpu.weight", buf) }

// CPUMax holds cpu.max: the CPU time that the group may use in each period.
type CPUMax struct {
	Quota     time.Duration // may be longer than Period: several CPUs. 0 if Unlimited
	Period    time.Duration
	Unlimited bool // "max"
}

// ParseCPUMax parses cpu.max: "QUOTA PERIOD" in microseconds, the quota or "max" (v6.12
// kernel/sched/core.c, cpu_period_quota_print).
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

// CPUMax reads cpu.max. The root cgroup has no cpu.max.
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
