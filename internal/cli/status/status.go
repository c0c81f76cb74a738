// Package status is jettison status: how a node stands, on one screen, as its agent says or, where
// there is none, as its kernel does.
//
//	command.go   Command: jettison status
//	status.go    run: what is asked, and the report that comes of it
//	own.go       a look of the command's own, where no agent answers
//	problems.go  what is wrong, and what to do about it
//	screen.go    the report as people read it
package status

import (
	"context"
	"errors"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/retry"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/show"
	"jettison/internal/node/observe"
	"jettison/stats"
)

// ErrUnhealthy: something is wrong. The report was printed, and says what.
var ErrUnhealthy = errors.New("the node is not healthy")

var errNoSocket = errors.New("no socket is configured, so that the agent cannot be asked")

// apart is the time between the two looks that a slope is taken of.
const apart = time.Second

// options of run.
type options struct {
	look   observe.Options // where things are, for a look of its own
	node   string          // its name
	format output.Format
	wrong  error // with the configuration, so that Look has little of it; nil: nothing
}

// Report is how a node stands.
type Report struct {
	Node     string    `json:"node"`
	Healthy  bool      `json:"healthy"`
	Agent    string    `json:"agent"` // its version; empty: it does not answer
	Problems []Problem `json:"problems"`
	Slopes   []Slope   `json:"slopes"`
	// the agent's, or what the command has seen itself; null: neither is known
	State *api.State `json:"state"`
}

// Slope is how a signal changes.
type Slope struct {
	Signal    stats.Signal `json:"signal"`
	PerSecond float64      `json:"perSecond"` // in the signal's unit
	// Seconds until its nearest threshold is crossed if it goes on like this; nil: it does not come
	// nearer, or is beyond it.
	Seconds *float64 `json:"secondsToThreshold,omitempty"`
}

// run prints the report. What is wrong is ErrUnhealthy.
func run(ctx context.Context, o options, out *terminal.Screen) error {
	r, err := o.report(ctx)
	if err != nil {
		return err
	}
	if o.format.Data() {
		err = o.format.EncodeIndented(out, r)
	} else {
		err = out.Print(r.screen(min(widest, orWidest(out.Width())), o.format == output.AsWide)...)
	}
	if err == nil && !r.Healthy {
		err = ErrUnhealthy
	}
	return err
}

// report asks twice: a slope is a difference.
func (o options) report(ctx context.Context) (*Report, error) {
	look, down := o.ask, error(nil)
	before, err := look(ctx)
	if err != nil && ctx.Err() == nil {
		down = err
		look = o.own
		before, err = look(ctx)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r := &Report{Node: o.node, Problems: []Problem{}, Slopes: []Slope{}}
	if err == nil {
		if !retry.Sleep(ctx, apart) {
			return nil, context.Cause(ctx)
		}
		r.State, err = look(ctx)
		if err != nil { // it went meanwhile
			r.State = before
		}
		r.Slopes = slopes(before, r.State)
	}
	if down == nil && r.State != nil {
		r.Agent = r.State.Version
	}
	r.findProblems(down, err)
	r.blame(o.wrong)
	return r, nil
}

// ask asks the agent.
func (o options) ask(ctx context.Context) (*api.State, error) {
	if o.look.Config.Socket == "" {
		return nil, errNoSocket
	}
	return api.New(api.Options{Socket: o.look.Config.Socket, Limit: askLimit}).State(ctx)
}

// askLimit is for the agent's answer. It says within 2 s that it is too busy.
const askLimit = 3 * time.Second

// slopes of the signals that were observed twice.
func slopes(before, now *api.State) []Slope {
	out := []Slope{}
	for i := range now.Signals {
		s := &now.Signals[i]
		for j := range before.Signals {
			if was := &before.Signals[j]; was.Signal == s.Signal && was.Observed && s.Observed {
				if slope, ok := slopeOf(was, s); ok {
					out = append(out, slope)
				}
			}
		}
	}
	return out
}

func slopeOf(was, is *api.SignalState) (Slope, bool) {
	if was.Time == nil || is.Time == nil || !is.Time.After(*was.Time) {
		return Slope{}, false
	}
	out := Slope{Signal: is.Signal,
		PerSecond: (float64(is.Available) - float64(was.Available)) / is.Time.Sub(*was.Time).Seconds()}
	limit, ok := nearest(is)
	left, towards := float64(is.Available)-float64(limit), -out.PerSecond
	if show.Pressure(is.Signal) {
		left, towards = -left, -towards
	}
	if ok && left > 0 && towards > 0 {
		seconds := left / towards
		out.Seconds = &seconds
	}
	return out, true
}

// nearest is the limit that a signal comes to first.
func nearest(s *api.SignalState) (limit uint64, ok bool) {
	for i, v := range s.Limits {
		if sooner := v > limit != show.Pressure(s.Signal); i == 0 || sooner {
			limit = v
		}
	}
	return limit, len(s.Limits) > 0
}

func beyond(s *api.SignalState) bool {
	limit, ok := nearest(s)
	if show.Pressure(s.Signal) {
		return ok && s.Observed && s.Available > limit
	}
	return ok && s.Observed && s.Available < limit
}
