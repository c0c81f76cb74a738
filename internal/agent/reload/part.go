package reload

import (
	"errors"
	"slices"
	"strings"
	"time"

	"jettison/api"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/config"
)

// closeLimit is the time for a Reloader to end when the agent stops.
const closeLimit = time.Second

// Part is the loop's part: it applies a configuration that a Reloader has read, or keeps the
// current one. It belongs to the loop's goroutine.
type Part struct {
	log      *logthrottle.Logger
	running  *config.Loaded // in effect
	reloader *Reloader      // nil before Start
	state    api.ConfigState
}

// NewPart returns a Part with the configuration in effect, read at now.
func NewPart(now time.Time, running *config.Loaded, log *logthrottle.Logger) *Part {
	return &Part{log: log, running: running, state: api.ConfigState{From: running.From,
		EndpointFrom: running.EndpointFrom, Read: now}}
}

// Start starts to reload the configuration. stop ends it.
func (p *Part) Start(o Options) (stop func() error) {
	o.Running, o.Log = p.running, p.log.Logger
	p.reloader = Start(o)
	return func() error { return p.reloader.Close(closeLimit) }
}

// Results returns the channel of read configurations, for OnResult; nil before Start.
func (p *Part) Results() <-chan Result {
	if p.reloader == nil {
		return nil
	}
	return p.reloader.Results()
}

// OnResult decides on a read configuration. It returns the configuration for the loop to apply, or
// nil if nothing changes. fits returns an error if this node cannot use it, and warnings about
// values that do not fit the node.
func (p *Part) OnResult(r *Result, fits func(*config.Loaded) (warnings []error,
	err error)) *config.Loaded {
	if r.Err != nil {
		p.keep(r.Err)
		return nil
	}
	change := p.running.Reloaded(r.Loaded)
	warnings, err := fits(change.Loaded)
	if err != nil {
		p.keep(err)
		return nil
	}
	recovered := p.state.Error != ""
	p.state.Error = ""
	if len(change.Now) > 0 || recovered || r.Requested || change.Loaded.From != p.running.From {
		p.state.Reloads++
		//log: The agent read its configuration again and applied the changed fields.
		p.log.Info("configuration reloaded", "config", change.Loaded.From, "changed", change.Now)
		for _, text := range change.Warnings {
			p.log.Warn("configuration warning", "warning", text)
		}
	}
	if len(change.Now) > 0 {
		for _, warning := range warnings {
			p.log.Warn("configuration exceeds node capacity", "error", warning)
		}
	}
	if !slices.Equal(change.NextStart, p.state.NextStart) && len(change.NextStart) > 0 {
		//log: Some changed fields are only read at start. The agent keeps their previous values.
		//do: Restart the agent to apply the fields.
		p.log.Warn("configuration change needs a restart", "fields",
			strings.Join(change.NextStart, ", "))
	}
	p.running = change.Loaded
	p.state.From, p.state.Read, p.state.NextStart = change.Loaded.From, r.Time, change.NextStart
	if len(change.Now) == 0 {
		return nil
	}
	return change.Loaded
}

// keep logs why the configuration in effect is kept. A missing kubelet is not an error: it may be
// restarting.
func (p *Part) keep(err error) {
	if errors.Is(err, config.ErrNoKubelet) {
		p.log.Repeat("configuration: no kubelet",
			//log: The kubelet whose configuration the agent uses is not running. The agent keeps
			//  the previous configuration until the kubelet is back.
			func() { p.log.Info("configuration reload waiting for kubelet", "reason", err) })
		return
	}
	p.state.Failed++
	p.state.Error = err.Error()
	//log: The configuration cannot be read, is invalid, or does not fit this node. The previous
	//  configuration stays in effect.
	//do: Correct the file that error names. The agent reads it again after a change.
	p.log.Error("configuration reload failed", "error", err)
}

// State returns the state of the configuration in effect. The result does not change.
func (p *Part) State() *api.ConfigState {
	s := p.state
	return &s
}
