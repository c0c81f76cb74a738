package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// CPUSettings are the settings that determine a group's CPU time. A setting is absent if the kernel
// lacks the file or its controller is disabled.
type CPUSettings struct {
	Max       CPUMax
	Weight    uint64 // 1 to 10000; meaningless if Idle
	Idle      bool   // cpu.idle (since v5.15): every other group has precedence
	HasMax    bool
	HasWeight bool
}

// MaxCPUWeight is the maximum of cpu.weight (include/linux/cgroup.h, CGROUP_WEIGHT_MAX).
const MaxCPUWeight = 10000

// CPUSettings reads cpu.max, cpu.weight and cpu.idle. os.ErrNotExist: the cpu controller is
// disabled here. CPUSettings uses no kept descriptor, so it may run while another goroutine uses
// the Group.
func (g *Group) CPUSettings(buf []byte) (s CPUSettings, err error) {
	s.Max, err = g.CPUMax(buf)
	s.HasMax = err == nil
	// without CFS bandwidth control there is no cpu.max
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return s, err
	}
	if s.Weight, err = g.CPUWeight(buf); err != nil {
		return s, err
	}
	s.HasWeight = true
	s.Idle = s.Weight == 0
	// the weight of an idle group reads as 0, or 1 (v6.12 kernel/sched/core.c tg_weight,
	// sched_weight_to_cgroup)
	if s.Weight > 1 {
		return s, nil
	}
	if b, err := g.read("cpu.idle", buf); err == nil {
		s.Idle = string(chomp(b)) == "1"
	} else if !errors.Is(err, os.ErrNotExist) {
		return s, err
	}
	return s, nil
}

// RaiseCPU removes the group's own CPU limits: cpu.max "max", the highest cpu.weight. It skips
// settings that the group does not have; os.ErrNotExist: the group has neither. Limits of ancestors
// stay in effect.
func (g *Group) RaiseCPU() error {
	unlimited := g.write("cpu.max", "max")
	weight := g.write("cpu.weight", "10000")
	// an idle group has no weight (kernel/sched/fair.c, sched_group_set_shares)
	if weight != nil && g.write("cpu.idle", "0") == nil {
		weight = g.write("cpu.weight", "10000")
	}
	if errors.Is(unlimited, os.ErrNotExist) && weight == nil {
		return nil
	}
	if unlimited != nil {
		return unlimited
	}
	return weight
}

// RestoreCPU restores the settings that RaiseCPU changed. Settings that another process has
// changed meanwhile stay. Without the controller cpu, which systemd takes from an empty slice, nothing
// is raised any more.
func (g *Group) RestoreCPU(before CPUSettings, buf []byte) error {
	now, err := g.CPUSettings(buf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	if before.HasMax && !before.Max.Unlimited && now.Max.Unlimited {
		errs = append(errs, g.write("cpu.max", fmt.Sprintf("%d %d", before.Max.Quota.Microseconds(),
			before.Max.Period.Microseconds())))
	}
	if before.HasWeight && now.Weight == MaxCPUWeight {
		if before.Idle {
			errs = append(errs, g.write("cpu.weight", "100"), g.write("cpu.idle", "1"))
		} else if before.Weight != MaxCPUWeight {
			errs = append(errs, g.write("cpu.weight", strconv.FormatUint(before.Weight, 10)))
		}
	}
	return errors.Join(errs...)
}
