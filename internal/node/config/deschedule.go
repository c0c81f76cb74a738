package config

import (
	"fmt"
	"time"

	"jettison/reclaim/nodedeschedule"
)

// What Deschedule may be beside off.
const (
	DescheduleReport = "report"
	DescheduleAct    = "act"
)

// leastDescheduling is the shortest period.
const leastDescheduling = Duration(10 * time.Second)

func defaultDescheduling() Descheduling {
	return Descheduling{
		Period: Duration(5 * time.Minute), StaleDuplicates: true, FailedAfter: Duration(time.Hour),
		MaxRestarts: 100,
		MinAge:      Duration(10 * time.Minute), ExcludeNamespaces: []string{"kube-system"}, MaxPods: 1,
	}
}

// check checks the parts of the field.
func (d *Descheduling) check() error {
	const field = "descheduling"
	if d.Period < leastDescheduling {
		return wrong(fmt.Errorf("%v is too short: want at least %v", d.Period, leastDescheduling), field,
			"period")
	}
	if d.ShedAbove < 0 || d.ShedAbove > 100 {
		return wrong(fmt.Errorf("%d: want a percentage from 0 to 100", d.ShedAbove), field, "shedAbove")
	}
	if d.MaxPods < 1 {
		return wrong(fmt.Errorf("%d: want 1 or more; deschedule: report stops none", d.MaxPods), field,
			"maxPods")
	}
	for _, f := range []struct {
		part     string
		value    any
		negative bool
	}{
		{"failedAfter", d.FailedAfter, d.FailedAfter < 0}, {"maxAge", d.MaxAge, d.MaxAge < 0},
		{"minAge", d.MinAge, d.MinAge < 0},
		{"maxRestarts", d.MaxRestarts, d.MaxRestarts < 0}, {"maxPodsOfNamespace", d.MaxPodsOfNamespace,
			d.MaxPodsOfNamespace < 0},
	} {
		if f.negative {
			return wrong(fmt.Errorf("%v is negative", f.value), field, f.part)
		}
	}
	return nil
}

// Policy is who should go by it.
func (d *Descheduling) Policy() nodedeschedule.Policy {
	return nodedeschedule.Policy{
		StaleDuplicates: d.StaleDuplicates, FailedAfter: time.Duration(d.FailedAfter),
		MaxRestarts:      uint64(d.MaxRestarts),
		IgnoreContainers: d.IgnoreContainers, MaxAge: time.Duration(d.MaxAge),
		ShedAbove: uint32(d.ShedAbove),
		MinAge:    time.Duration(d.MinAge), ExcludeNamespaces: d.ExcludeNamespaces,
		LocalStorage: d.EvictLocalStorage, Unowned: d.EvictUnowned,
		MaxPods: int(d.MaxPods), MaxPodsOfNamespace: int(d.MaxPodsOfNamespace),
	}
}
