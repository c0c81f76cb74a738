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

// closeLimit is for a Reloader to end when the agent does.
const closeLimit = time.Second

// Part is the loop's: it takes what a Reloader reads, or keeps what holds. All of it is for the
// loop's goroutine.
type Part struct {
	log      *logthrottle.Logger
	running  *config.Loaded // what holds
	reloader *Reloader      // nil: nothing is read again
	state    api.ConfigState
}

// NewPart makes a Part by whose word running holds since then.
func NewPart(now time.Time, running *config.Loaded, log *logthrottle.Logger) *Part {
	return &Part{log: log, running: running, state: api.ConfigState{From: running.From,
		EndpointFrom: running.EndpointFrom, Read: now}}
}

// Start begins to read the configuration again. The returned function ends that.
func (p *Part) Start(o Options) (stop func() error) {
	o.Running, o.Log = p.running, p.log.Logger
	p.reloader = Start(o)
	return func() error { return p.reloader.Close(closeLimit) }
}

// Results is where configurations come from that were read again, for OnResult; nil without Start.
func (p *Part) Results() <-chan Result {
	if p.reloader == nil {
		return nil
	}
	return p.reloader.Results()
}

// OnResult decides on what was read: what holds from now on, or nil where that is what held before.
// fits says why this node cannot have a configuration, and what is odd about it here.
func (p *Part) OnResult(r *Result, fits func(*config.Loaded) (doubts []error,
	err error)) *config.Loaded {
	if r.Err != nil {
		p.keep(r.Err)
		return nil
	}
	change := p.running.Reloaded(r.Loaded)
	doubts, err := fits(change.Loaded)
	if err != nil {
		p.keep(err)
		return nil
	}
	recovered := p.state.Error != ""
	p.state.Error = ""
	if len(change.Now) > 0 || recovered || r.Asked || change.Loaded.From != p.running.From {
		p.state.Reloads++
		p.log.Info("configuration reloaded", "config", change.Loaded.From, "changed", change.Now)
		for _, text := range change.Warnings {
			p.log.Warn("config: " + text)
		}
	}
	if len(change.Now) > 0 {
		for _, doubt := range doubts {
			p.log.Warn("not as it should be", "error", doubt)
		}
	}
	if !slices.Equal(change.NextStart, p.state.NextStart) && len(change.NextStart) > 0 {
		p.log.Warn("takes effect at the next start", "fields", strings.Join(change.NextStart, ", "))
	}
	p.running = change.Loaded
	p.state.From, p.state.Read, p.state.NextStart = change.Loaded.From, r.Time, change.NextStart
	if len(change.Now) == 0 {
		return nil
	}
	return change.Loaded
}

// keep keeps what holds. A kubelet that is not there is no fault: it is starting anew.
func (p *Part) keep(err error) {
	if errors.Is(err, config.ErrNoKubelet) {
		p.log.Repeat("configuration: no kubelet",
			func() { p.log.Info("configuration not reloaded", "reason", err) })
		return
	}
	p.state.Failed++
	p.state.Error = err.Error()
	p.log.Error("configuration not reloaded: what it was before holds", "error", err)
}

// State is the configuration that holds, for others. It is not changed afterwards.
func (p *Part) State() *api.ConfigState {
	s := p.state
	return &s
}
