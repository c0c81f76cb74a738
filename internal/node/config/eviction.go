package config

import (
	"time"

	"jettison/eviction"
)

// Eviction returns the configuration of decisions on a live node.
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

// Replay returns the configuration of decisions on recorded frames. It differs from Eviction in
// three points. The breaker is off, because frames do not contain the results of this
// configuration's kills. No shortage has to be explained, because frames need not include the disk
// at rest. No reading is too old, because frames may be minutes apart.
func (c *Config) Replay() eviction.Config {
	e := c.Eviction()
	e.Breaker, e.Explain, e.Replay = false, false, true
	return e
}
