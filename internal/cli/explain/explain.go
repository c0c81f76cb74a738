// Package explain is jettison explain: whom the agent would evict next, why this pod, and who is
// protected by what. The agent ranks, by the code that it decides by.
//
//	command.go  Command: jettison explain
//	explain.go  run: what is asked, and of whom
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
	"jettison/internal/base/nearest"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/node/apiconvert"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
)

// errUnknownSignal: no threshold is for the signal that was asked about.
var errUnknownSignal = errors.New("no threshold is for it")

// options of run.
type options struct {
	look   observe.Options // where things are, for a look of the command's own
	signal string          // empty: all that have a threshold
	format output.Format
}

// run asks and prints the answer.
func run(ctx context.Context, o options, out *terminal.Screen, stderr io.Writer) error {
	answer, err := o.ask(ctx)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(stderr, "jettison: explain: no agent answers (%s): this is by a look of the "+
			"command's own, which knows no objects of "+
			"clients, no eviction under way and no breaker\n", output.OneLine(err.Error()))
		answer, err = o.own(ctx)
	}
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	if o.signal != "" {
		if err := narrow(answer, o.signal); err != nil {
			return err
		}
	}
	if o.format.Data() {
		return o.format.EncodeIndented(out, answer)
	}
	if o.signal == "" {
		return summary(answer, out, o.format == output.AsWide)
	}
	return inFull(answer, out, o.format == output.AsWide)
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
		return fmt.Errorf("explain: %.60q: %w%s (there is one for %s)", signal, errUnknownSignal,
			nearest.Question(signal, slices.Values(known)),
			strings.Join(known, ", "))
	}
	answer.Thresholds = slices.DeleteFunc(answer.Thresholds,
		func(t api.ThresholdOutlook) bool { return string(t.Signal) != signal })
	return nil
}

func (o options) ask(ctx context.Context) (*api.Outlook, error) {
	if o.look.Config.Socket == "" {
		return nil, errors.New("no socket is configured")
	}
	return api.New(api.Options{Socket: o.look.Config.Socket, Limit: askLimit}).Outlook(ctx)
}

// askLimit is for the agent's answer; ownWait for what a look of the command's own waits for.
const (
	askLimit = 5 * time.Second
	ownWait  = 5 * time.Second
)

// own ranks by a look of the command's own: the same code, which knows less.
func (o options) own(ctx context.Context) (*api.Outlook, error) {
	o.look.Watch, o.look.Wait = time.Second, ownWait
	s, err := sources.Open(o.look.Options)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	look := observe.Once(ctx, s, o.look)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m := eviction.NewManager(o.look.Config.Eviction())
	m.Observe(look.Time, &look.Summary.Node, eviction.Situation{})
	out := &api.Outlook{Time: look.Time, Thresholds: []api.ThresholdOutlook{}}
	for _, t := range m.Outlook(look.Time, eviction.Input{Summary: &look.Summary}) {
		out.Thresholds = append(out.Thresholds, apiconvert.Outlook(&t, api.Title))
	}
	return out, nil
}
