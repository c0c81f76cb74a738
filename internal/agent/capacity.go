package agent

import (
	"context"
	"time"

	"jettison/eviction"
	"jettison/internal/config"
	"jettison/stats"
)

// capacityWait is how long the first look at the file systems may take before the agent starts without it.
const capacityWait = 2 * time.Second

// ConfigError is a configuration that this node cannot satisfy.
type ConfigError struct{ error }

// Unwrap is what is wrong.
func (e ConfigError) Unwrap() error { return e.error }

// checkCapacity looks at the node once and holds the thresholds against it: what it cannot satisfy is an error where our own file
// says so, and else a doubt to be logged. A signal that is not observed is not judged.
func (a *agent) checkCapacity(ctx context.Context) (doubts []error, err error) {
	now := time.Now()
	_ = a.Reader.Node(now, &a.node) // what cannot be read is logged by the loop
	_ = a.Reader.Slow(now, &a.node)
	if a.background != nil {
		wait, cancel := context.WithTimeout(ctx, capacityWait)
		a.background.WaitNode(wait)
		cancel()
		a.background.FillNode(time.Now(), &a.node)
	}
	s := stats.Summary{Node: a.node}
	wrong := eviction.CheckCapacity(a.o.Config.Thresholds, func(signal stats.Signal) stats.Observation {
		return s.Observe(time.Now(), signal, a.o.Config.MemoryAvailable)
	})
	for _, w := range wrong {
		blamed := a.o.Config.Blame(w)
		if a.o.Config.Kind == config.KindAgent && a.o.Config.Path != "" {
			return nil, ConfigError{blamed}
		}
		doubts = append(doubts, blamed)
	}
	return doubts, nil
}
