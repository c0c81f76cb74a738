package config

import (
	"fmt"
	"time"

	"jettison/reclaim/nodedeschedule"
)

// The values of Deschedule, in addition to Off.
const (
	DescheduleReport = "report"
	DescheduleAct    = "act"
)

// minDeschedulePeriod is the minimum period.
const minDeschedulePeriod = Duration(10 * time.Second)

func defaultDescheduling() Descheduling {
	return Descheduling{
		Period: Duration(5 * time.Minute), StaleDuplicates: true, FailedAfter: Duration(time.Hour),
		MaxRestarts: 100,
		MinAge:      Duration(10 * time.Minute), ExcludeNamespaces: []string{"kube-system"}, MaxPods: 1,
	}
}

// check checks the fields of the mapping.
func (d *Descheduling) check() error {
	const field = "descheduling"
	if d.Period < minDeschedulePeriod {
		return fieldError(fmt.Errorf("%v is too short: want at least %v", d.Period, minDeschedulePeriod), field,
			"period")
	}
	if d.ShedAbove < 0 || d.ShedAbove > 100 {
		return fieldError(fmt.Errorf("%d: want a percentage from 0 to 100", d.ShedAbove), field, "shedAbove")
	}
	if d.MaxPods < 1 {
		return fieldError(fmt.Errorf("%d: want 1 or more; to stop no pod, set deschedule: report", d.MaxPods), field,
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
			return fieldError(fmt.Errorf("%v is negative", f.value), field, f.part)
		}
	}
	return nil
}

// Policy returns the policy of the descheduling plan.
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
