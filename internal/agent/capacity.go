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

// capacityWait is the time limit of the first look at file systems; then the agent starts without
// it.
const capacityWait = 2 * time.Second

// ConfigError is the error of a configuration that exceeds this node.
type ConfigError struct{ error }

// Unwrap returns the cause.
func (e ConfigError) Unwrap() error { return e.error }

// capacity returns the node's capacity by the last look.
func (l *loop) capacity() v1.ResourceList {
	return limits.Capacity(l.looks.Node(), pace.Cores(), limits.HugePages("/sys"))
}

// checkCapacity reads the node once and compares thresholds and reservations with it. A value that
// exceeds the node is an error if the agent's own file sets it, and otherwise a warning. Signals
// without an observation are not checked.
func (l *loop) checkCapacity(ctx context.Context) (doubts []error, err error) {
	l.looks.First(ctx, capacityWait)
	return l.checkFit(l.o.Config)
}

// checkFit compares a configuration with the node by the last look.
func (l *loop) checkFit(c *config.Loaded) (doubts []error, err error) {
	s := stats.Summary{Node: *l.looks.Node()}
	wrong := eviction.CheckCapacity(c.Thresholds, func(signal stats.Signal) stats.Observation {
		return s.Observe(time.Now(), signal, c.MemoryAvailable)
	})
	for _, w := range append(wrong, l.overReserved(c)...) {
		blamed := c.ErrorAt(w)
		if c.Kind == config.KindAgent && c.SetByOwn(w.Field...) {
			return nil, ConfigError{blamed}
		}
		doubts = append(doubts, blamed)
	}
	return doubts, nil
}

// overReserved returns the reservations that exceed the node's capacity. Thresholds that alone are
// too high are found by eviction.CheckCapacity.
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
