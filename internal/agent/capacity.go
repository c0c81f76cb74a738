package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/eviction"
	"jettison/internal/agent/pace"
	"jettison/internal/node/config"
	"jettison/internal/node/limits"
	"jettison/stats"
)

// capacityWait is how long the first look at the file systems may take before the agent starts
// without it.
const capacityWait = 2 * time.Second

// ConfigError is a configuration that this node cannot satisfy.
type ConfigError struct{ error }

// Unwrap is what is wrong.
func (e ConfigError) Unwrap() error { return e.error }

// capacity is what the node has, as it was last looked at.
func (l *loop) capacity() v1.ResourceList {
	return limits.Capacity(l.looks.Node(), pace.Cores(), limits.HugePages("/sys"))
}

// checkCapacity looks at the node once and holds thresholds and reservations against it: what it
// cannot satisfy is an error where our own file says so, and else a doubt to be logged. A signal
// that is not observed is not judged.
func (l *loop) checkCapacity(ctx context.Context) (doubts []error, err error) {
	l.looks.First(ctx, capacityWait)
	return l.fits(l.o.Config)
}

// fits holds a configuration against the node as it was last looked at.
func (l *loop) fits(c *config.Loaded) (doubts []error, err error) {
	s := stats.Summary{Node: *l.looks.Node()}
	wrong := eviction.CheckCapacity(c.Thresholds, func(signal stats.Signal) stats.Observation {
		return s.Observe(time.Now(), signal, c.MemoryAvailable)
	})
	for _, w := range append(wrong, l.overReserved(c)...) {
		blamed := c.Blame(w)
		if c.Kind == config.KindAgent && c.SetByOwn(w.Field...) {
			return nil, ConfigError{blamed}
		}
		doubts = append(doubts, blamed)
	}
	return doubts, nil
}

// overReserved is what more of is reserved than there is. Where only a threshold is too high, that
// is found elsewhere.
func (l *loop) overReserved(c *config.Loaded) (wrong []*eviction.FieldError) {
	capacity := l.capacity()
	reserved := reserved(c, capacity)
	for name, has := range capacity {
		for _, f := range []struct {
			field string
			list  v1.ResourceList
		}{{"kubeReserved", reserved.Kube}, {"systemReserved", reserved.System}} {
			if _, ok := f.list[name]; !ok {
				continue
			}
			for _, text := range admit.Exceeded(v1.ResourceList{name: has}, reserved) {
				wrong = append(wrong, &eviction.FieldError{Field: []string{f.field, string(name)},
					Err: errors.New(text)})
			}
			break
		}
	}
	slices.SortFunc(wrong, func(x, y *eviction.FieldError) int {
		return slices.Compare(x.Field, y.Field)
	})
	return wrong
}
