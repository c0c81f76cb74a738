package config

import (
	"time"

	"jettison/eviction"
)

// Eviction is what decisions on a live node go by.
func (c *Config) Eviction() eviction.Config {
	return eviction.Config{
		Thresholds: c.Thresholds, MemoryAvailable: c.MemoryAvailable,
		Policy: eviction.Policy{AnnotationNamespaces: c.AnnotationNamespaces,
			ProtectedNamespaces: c.ProtectedNamespaces},
		MaxPodGracePeriodSeconds: int64(c.EvictionMaxPodGracePeriod),
		PressureTransitionPeriod: time.Duration(c.EvictionPressureTransitionPeriod),
		LocalStorage:             c.LocalStorageCapacityIsolation,
		Breaker:                  c.Breaker,
		Explain:                  true,
	}
}

// Replay is what decisions on recorded frames go by: Eviction, but for three things. The breaker is
// off, for frames do not tell what the kills of this configuration would have returned. No shortage
// has to be explained: frames need not have the disk at rest. No reading is too old, for frames may
// be minutes apart.
func (c *Config) Replay() eviction.Config {
	e := c.Eviction()
	e.Breaker, e.Explain, e.Replay = false, false, true
	return e
}
