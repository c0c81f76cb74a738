// Package status implements jettison status: it shows a node's state on one screen. The state comes
// from the agent, or from the kernel if no agent answers.
//
//	command.go   Command: jettison status
//	status.go    run: queries the agent and builds the report
//	node.go      reads the node if no agent answers
//	problems.go  problems and their remedies
//	screen.go    the report formatted for a terminal
package status

import (
	"context"
	"errors"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/retry"
	"jettison/internal/base/terminal"
	"jettison/internal/node/observe"
	"jettison/stats"
)

// ErrUnhealthy reports that the node has a problem. The printed report names it.
var ErrUnhealthy = errors.New("the node is not healthy")

var errNoSocket = errors.New("no socket is configured, so the agent cannot be queried")

// slopeInterval is the time between the two looks from which a slope is computed.
const slopeInterval = time.Second

// options of run.
type options struct {
	look      observe.Options // for reading the node without an agent
	node      string          // node name
	format    output.Format
	configErr error // the configuration is invalid and look holds only its readable fields; nil: valid
}

// Report is the state of a node.
type Report struct {
	Node     string    `json:"node"`
	Healthy  bool      `json:"healthy"`
	Agent    string    `json:"agent"` // version of the agent; empty: it does not answer
	Problems []Problem `json:"problems"`
	Slopes   []Slope   `json:"slopes"`
	// State comes from the agent, or from the node if the agent does not answer; null: unknown.
	State *api.State `json:"state"`

	forbidden bool // this user may not query the agent
}

// Slope is the rate of change of a signal.
type Slope struct {
	Signal    stats.Signal `json:"signal"`
	PerSecond float64      `json:"perSecond"` // in the signal's unit
	// Seconds is the time until the nearest threshold is crossed at this rate; nil: the signal does
	// not approach it, or has crossed it.
	Seconds *float64 `json:"secondsToThreshold,omitempty"`
}

// run prints the report. It returns ErrUnhealthy if the node has a problem.
func run(ctx context.Context, o options, out *terminal.Screen) error {
	r, err := o.report(ctx)
	if err != nil {
		return err
	}
	if o.format.Data() {
		err = o.format.EncodeIndented(out, r)
	} else {
		err = out.Print(r.screen(min(maxWidth, orMaxWidth(out.Width())), o.format == output.AsWide)...)
	}
	if err == nil && !r.Healthy {
		err = ErrUnhealthy
	}
	return err
}

// report takes two looks, because a slope needs two.
func (o options) report(ctx context.Context) (*Report, error) {
	look, agentErr := o.queryAgent, error(nil)
	before, err := look(ctx)
	if err != nil && ctx.Err() == nil {
		agentErr = err
		look = o.readNode
		before, err = look(ctx)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r := &Report{Node: o.node, Problems: []Problem{}, Slopes: []Slope{}}
	if err == nil {
		if !retry.Sleep(ctx, slopeInterval) {
			return nil, context.Cause(ctx)
		}
		r.State, err = look(ctx)
		if err != nil { // the source failed between the two looks
			r.State = before
		}
		r.Slopes = slopes(before, r.State)
	}
	if agentErr == nil && r.State != nil {
		r.Agent = r.State.Version
	}
	r.findProblems(agentErr, err)
	r.addConfigProblem(o.configErr)
	return r, nil
}

// queryAgent reads the agent's state.
func (o options) queryAgent(ctx context.Context) (*api.State, error) {
	if o.look.Config.Socket == "" {
		return nil, errNoSocket
	}
	return api.New(api.Options{Socket: o.look.Config.Socket, Limit: o.look.Wait}).State(ctx)
}

// slopes returns the slopes of the signals that were observed in both looks.
func slopes(before, now *api.State) []Slope {
	out := []Slope{}
	for i := range now.Signals {
		s := &now.Signals[i]
		for j := range before.Signals {
			if old := &before.Signals[j]; old.Signal == s.Signal && old.Observed && s.Observed {
				if slope, ok := slopeOf(old, s); ok {
					out = append(out, slope)
				}
			}
		}
	}
	return out
}

func slopeOf(before, now *api.SignalState) (Slope, bool) {
	if before.Time == nil || now.Time == nil || !now.Time.After(*before.Time) {
		return Slope{}, false
	}
	out := Slope{Signal: now.Signal,
		PerSecond: (float64(now.Available) - float64(before.Available)) /
			now.Time.Sub(*before.Time).Seconds()}
	limit, ok := nearest(now)
	distance, speed := float64(now.Available)-float64(limit), -out.PerSecond
	if now.Signal.Pressure() {
		distance, speed = -distance, -speed
	}
	if ok && distance > 0 && speed > 0 {
		seconds := distance / speed
		out.Seconds = &seconds
	}
	return out, true
}

// nearest returns the threshold that the signal crosses first.
func nearest(s *api.SignalState) (limit uint64, ok bool) {
	for i, v := range s.Limits {
		if nearer := v > limit != s.Signal.Pressure(); i == 0 || nearer {
			limit = v
		}
	}
	return limit, len(s.Limits) > 0
}

// isMet reports whether the nearest threshold of a signal is met.
func isMet(s *api.SignalState) bool {
	limit, ok := nearest(s)
	if s.Signal.Pressure() {
		return ok && s.Observed && s.Available > limit
	}
	return ok && s.Observed && s.Available < limit
}
