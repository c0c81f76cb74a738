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
func (l *loop) checkCapacity(ctx context.Context) (doubts []error, err error) {
	c := l.o.Config
	l.looks.First(ctx, capacityWait)
	s := stats.Summary{Node: *l.looks.Node()}
	wrong := eviction.CheckCapacity(c.Thresholds, func(signal stats.Signal) stats.Observation {
		return s.Observe(time.Now(), signal, c.MemoryAvailable)
	})
	for _, w := range wrong {
		blamed := c.Blame(w)
		if c.Kind == config.KindAgent && c.Path != "" {
			return nil, ConfigError{blamed}
		}
		doubts = append(doubts, blamed)
	}
	return doubts, nil
}
