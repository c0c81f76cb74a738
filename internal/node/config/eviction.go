package config

import (
	"slices"
	"time"

	"jettison/eviction"
	"jettison/stats"
)

// UncoveredImageFs warns of thresholds for the node's file system without one for a dedicated image
// file system, which replaced default thresholds had: a full one then causes no eviction. Empty: no
// such gap.
func (c *Config) UncoveredImageFs() string {
	has := func(s stats.Signal) bool {
		_, hard := c.EvictionHard[string(s)] // "0%" switches the threshold off on purpose
		_, soft := c.EvictionSoft[string(s)]
		return hard || soft || slices.ContainsFunc(c.Thresholds,
			func(t eviction.Threshold) bool { return t.Signal == s })
	}
	if !has(stats.SignalNodeFsAvailable) || has(stats.SignalImageFsAvailable) {
		return ""
	}
	return "no threshold for imagefs.available: if images have a disk of their own, no pod is evicted " +
		"when it is full; add one to evictionHard, or set mergeDefaultEvictionSettings: true"
}

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
