package config

import (
	"fmt"
	"time"

	"jettison/reclaim"
)

// GCPolicy returns the rules of garbage collection.
func (c *Config) GCPolicy() reclaim.Policy {
	return reclaim.Policy{
		Container: reclaim.ContainerPolicy{
			MinAge:             time.Duration(c.ContainerGC.MinAge),
			MaxPerPodContainer: int(c.ContainerGC.MaxPerPodContainer),
			MaxContainers:      int(c.ContainerGC.MaxContainers),
			CreatedMinAge:      time.Duration(c.ContainerGC.CreatedMinAge),
		},
		Image: reclaim.ImagePolicy{
			HighThresholdPercent: int(c.ImageGCHighThresholdPercent),
			LowThresholdPercent:  int(c.ImageGCLowThresholdPercent),
			MinAge:               time.Duration(c.ImageMinimumGCAge),
			MaxAge:               time.Duration(c.ImageMaximumGCAge),
		},
	}
}

// Collect is the part of a configuration that garbage collection on a live node uses.
type Collect struct {
	Policy reclaim.Policy
	Mode   Mode // of gc
	// PodGoneAfter is the time that a pod without object and manifest must have no process before it is gone.
	PodGoneAfter time.Duration

	RootDir    string // the kubelet's
	PodLogsDir string
	CgroupRoot string
}

// Collect returns the configuration of garbage collection on a live node.
func (c *Config) Collect() Collect {
	return Collect{
		Policy: c.GCPolicy(), Mode: c.GC, PodGoneAfter: time.Duration(c.PodGoneAfter),
		RootDir: c.RootDir, PodLogsDir: c.PodLogsDir, CgroupRoot: c.CgroupRoot,
	}
}

// checkGC checks the rules of garbage collection. A kubelet does not start with such rules either.
func (c *Config) checkGC() error {
	p := c.GCPolicy()
	if err := p.Container.Validate(); err != nil {
		return fieldError(err, "containerGC")
	}
	if err := p.Image.Validate(); err != nil {
		field := "imageGCHighThresholdPercent"
		switch high := p.Image.HighThresholdPercent; {
		case p.Image.MinAge < 0:
			field = "imageMinimumGCAge"
		case p.Image.MaxAge < 0:
			field = "imageMaximumGCAge"
		case high >= 0 && high <= 100:
			field = "imageGCLowThresholdPercent"
		}
		return fieldError(err, field)
	}
	for _, f := range []struct {
		field string
		value Duration
	}{{"containerGCPeriod", c.ContainerGCPeriod}, {"imageGCPeriod", c.ImageGCPeriod}} {
		if f.value != 0 && time.Duration(f.value) < time.Second {
			return fieldError(fmt.Errorf("%v: want at least 1s, or 0 to disable the period", f.value), f.field)
		}
	}
	return nil
}
