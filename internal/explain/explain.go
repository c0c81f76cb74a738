// Package explain is jettison explain: whom the agent would evict next, why this pod, and who is protected by what. The agent ranks, by the
// code that it decides by.
//
//	explain.go  Run: what is asked, and of whom
//	words.go    the answer as people read it
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/nearest"
	"jettison/internal/observe"
	"jettison/internal/show"
	"jettison/internal/sources"
	"jettison/internal/terminal"
	"jettison/internal/worded"
)

// ErrUnknownSignal: no threshold is for the signal that was asked about.
var ErrUnknownSignal = errors.New("no threshold is for it")

// Options of Run.
type Options struct {
	Look   observe.Options // where things are, for a look of the command's own
	Signal string          // empty: all that have a threshold
	Format show.Format
}

// Run asks and prints the answer.
func Run(ctx context.Context, o Options, out *terminal.Screen, stderr io.Writer) error {
	answer, err := o.ask(ctx)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(stderr, "jettison: explain: no agent answers (%s): this is by a look of the command's own, which knows no objects of "+
			"clients, no eviction under way and no breaker\n", show.OneLine(err.Error()))
		answer, err = o.own(ctx)
	}
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	if o.Signal != "" {
		if err := narrow(answer, o.Signal); err != nil {
			return err
		}
	}
	if o.Format.Data() {
		return o.Format.EncodeIndented(out, answer)
	}
	if o.Signal == "" {
		return summary(answer, out, o.Format == show.AsWide)
	}
	return inFull(answer, out, o.Format == show.AsWide)
}

// narrow leaves the thresholds of one signal.
func narrow(answer *api.Outlook, signal string) error {
	var known []string
	for _, t := range answer.Thresholds {
		if !slices.Contains(known, string(t.Signal)) {
			known = append(known, string(t.Signal))
		}
	}
	if !slices.Contains(known, signal) {
		return fmt.Errorf("explain: %.60q: %w%s (there is one for %s)", signal, ErrUnknownSignal, nearest.Question(signal, slices.Values(known)),
			strings.Join(known, ", "))
	}
	answer.Thresholds = slices.DeleteFunc(answer.Thresholds, func(t api.ThresholdOutlook) bool { return string(t.Signal) != signal })
	return nil
}

func (o Options) ask(ctx context.Context) (*api.Outlook, error) {
	if o.Look.Config.Socket == "" {
		return nil, errors.New("no socket is configured")
	}
	return api.New(api.Options{Socket: o.Look.Config.Socket, Limit: askLimit}).Outlook(ctx)
}

// askLimit is for the agent's answer; ownWait for what a look of the command's own waits for.
const (
	askLimit = 5 * time.Second
	ownWait  = 5 * time.Second
)

// own ranks by a look of the command's own: the same code, which knows less.
func (o Options) own(ctx context.Context) (*api.Outlook, error) {
	o.Look.Watch, o.Look.Wait = time.Second, ownWait
	s, err := sources.Open(o.Look.Options)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	look := observe.Once(ctx, s, o.Look)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m := eviction.NewManager(o.Look.Config.Eviction())
	m.Observe(look.Time, &look.Summary.Node, eviction.Situation{})
	out := &api.Outlook{Time: look.Time, Thresholds: []api.ThresholdOutlook{}}
	for _, t := range m.Outlook(look.Time, eviction.Input{Summary: &look.Summary}) {
		out.Thresholds = append(out.Thresholds, worded.Outlook(&t, api.Title))
	}
	return out, nil
}
