package eviction

// Reconfigure has the manager decide by another configuration from the next step on. What it remembers stays: since when thresholds are
// met, for a threshold is the same one whatever its value and its grace period become; conditions; evictions that are not over; who is set
// aside, and what the breaker has counted. By the configuration that it has already it decides as if nothing had happened. Of c, Replay
// must be what it was.
func (m *Manager) Reconfigure(c Config) {
	texts := m.config.Policy.texts
	m.config = c
	clear(texts) // they name namespaces of the policy before
	m.config.Policy.texts = texts
	thresholds := c.Thresholds
	if m.layout.OK {
		thresholds = withContainerFs(thresholds, m.layout.V)
	}
	m.watch(thresholds)
	m.usePressure()
	m.before = Decision{} // it was for thresholds as they were
}
