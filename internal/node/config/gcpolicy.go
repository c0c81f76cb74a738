package config

import (
	"fmt"
	"time"

	"jettison/reclaim"
)

// GCPolicy is when what garbage is removed.
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

// Collect is what of a configuration garbage collection on a live node goes by.
type Collect struct {
	Policy reclaim.Policy
	Mode   Mode // of gc
	// PodGoneAfter is for how long a pod that no client and no manifest names has nothing alive before
	// it is gone.
	PodGoneAfter time.Duration

	RootDir    string // the kubelet's
	PodLogsDir string
	CgroupRoot string
}

// Collect is what garbage collection goes by.
func (c *Config) Collect() Collect {
	return Collect{
		Policy: c.GCPolicy(), Mode: c.GC, PodGoneAfter: time.Duration(c.PodGoneAfter),
		RootDir: c.RootDir, PodLogsDir: c.PodLogsDir, CgroupRoot: c.CgroupRoot,
	}
}

// checkGC checks what garbage collection goes by. A kubelet does not start with such a policy
// either.
func (c *Config) checkGC() error {
	p := c.GCPolicy()
	if err := p.Container.Validate(); err != nil {
		return wrong(err, "containerGC")
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
		return wrong(err, field)
	}
	for _, f := range []struct {
		field string
		value Duration
	}{{"containerGCPeriod", c.ContainerGCPeriod}, {"imageGCPeriod", c.ImageGCPeriod}} {
		if f.value != 0 && time.Duration(f.value) < time.Second {
			return wrong(fmt.Errorf("%v: want at least 1s, or 0 for never", f.value), f.field)
		}
	}
	return nil
}
