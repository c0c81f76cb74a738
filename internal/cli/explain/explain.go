// Package explain implements jettison explain: it shows which pod the agent would evict next, why,
// and which pods are protected. The agent ranks the pods with the code that it evicts with.
//
//	command.go  Command: jettison explain
//	explain.go  run: queries the agent, or ranks the pods itself
//	table.go    the answer as tables
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
	"jettison/internal/cli/flags"
	"jettison/internal/node/apiconvert"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
)

// errUnknownSignal reports that the signal has no threshold.
var errUnknownSignal = errors.New("no threshold for this signal")

// options of run.
type options struct {
	look   observe.Options // for reading the node without an agent
	signal string          // empty: all signals with a threshold
	format output.Format
}

// run queries the agent, or ranks the pods itself if no agent answers, and prints the answer.
func run(ctx context.Context, o options, out *terminal.Screen, stderr io.Writer) error {
	answer, err := o.queryAgent(ctx)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(stderr, "jettison: explain: no ranking from the agent (%s): ranking without pod "+
			"objects of clients, evictions in progress and circuit breaker\n",
			flags.Reason(err))
		answer, err = o.rank(ctx)
	}
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	fmt.Fprintf(stderr, "%s", ageNotice(time.Since(answer.Time)))
	if o.signal != "" {
		if err := selectSignal(answer, o.signal); err != nil {
			return err
		}
	}
	fmt.Fprintf(stderr, "%s", diskNotice(answer))
	if o.format.Data() {
		return o.format.EncodeIndented(out, answer)
	}
	if o.signal == "" {
		return printSummary(answer, out, o.format == output.AsWide)
	}
	return printRankings(answer, out, o.format == output.AsWide)
}

// maxAge is the age of a ranking up to which explain prints no notice.
const maxAge = 2 * time.Second

// ageNotice returns the line for stderr about the age of a ranking; empty if it is current.
func ageNotice(age time.Duration) string {
	if age <= maxAge {
		return ""
	}
	return fmt.Sprintf("jettison: explain: the ranking is %v old: reading the pods took this long\n",
		age.Round(100*time.Millisecond))
}

// maxDiskAge is the age of disk usage up to which explain prints no notice. The agent measures disk
// usage again that is older than 2 minutes.
const maxDiskAge = 3 * time.Minute

// diskNotice returns what explain prints on stderr if a ranking uses old disk usage; otherwise it
// returns an empty string.
func diskNotice(o *api.Outlook) string {
	var most time.Duration
	for i := range o.Thresholds {
		if at := o.Thresholds[i].DiskUsageTime; at != nil {
			most = max(most, o.Time.Sub(*at))
		}
	}
	if most <= maxDiskAge {
		return ""
	}
	return fmt.Sprintf("jettison: explain: the disk usage of pods is up to %v old and is being measured "+
		"again: repeat the command for current rankings of disks\n", most.Round(time.Second))
}

// selectSignal removes the thresholds of other signals from answer.
func selectSignal(answer *api.Outlook, signal string) error {
	var known []string
	for _, t := range answer.Thresholds {
		if !slices.Contains(known, string(t.Signal)) {
			known = append(known, string(t.Signal))
		}
	}
	if !slices.Contains(known, signal) {
		return fmt.Errorf("explain: %.60q: %w%s (signals with a threshold: %s)", signal, errUnknownSignal,
			nearest.Question(signal, slices.Values(known)),
			strings.Join(known, ", "))
	}
	answer.Thresholds = slices.DeleteFunc(answer.Thresholds,
		func(t api.ThresholdOutlook) bool { return string(t.Signal) != signal })
	return nil
}

// queryAgent reads the outlook of the agent.
func (o options) queryAgent(ctx context.Context) (*api.Outlook, error) {
	if o.look.Config.Socket == "" {
		return nil, errors.New("no socket is configured")
	}
	return api.New(api.Options{Socket: o.look.Config.Socket, Limit: o.look.Wait}).Outlook(ctx)
}

// rank reads the node and ranks its pods without an agent.
func (o options) rank(ctx context.Context) (*api.Outlook, error) {
	o.look.Watch = time.Second
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
