// Package events is jettison events: what the agent on this node found, decided and did, as it says
// on its socket.
package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/retry"
	"jettison/internal/base/terminal"
)

// options of run.
type options struct {
	socket string
	since  time.Time // only what was later; zero: all that the agent has kept
	kinds  []string  // only these; none: all
	follow bool      // go on with those that come, until the context ends
	format output.Format
}

// kinds are those that there are.
var kinds = []string{
	string(api.EventAgent), string(api.EventCondition), string(api.EventEviction),
	string(api.EventGate), string(api.EventGarbage),
	string(api.EventMemory), string(api.EventPod), string(api.EventRuntime), string(api.EventSource),
	string(api.EventLost),
}

// again is the time between two attempts to go on, once an agent has answered: it may be starting
// anew.
const again = time.Second

// run prints events, the oldest first. An agent that hangs up on who follows, or that starts anew,
// is asked again from where it was.
func run(ctx context.Context, o options, out *terminal.Screen, stderr io.Writer) error {
	client := api.New(api.Options{Socket: o.socket})
	var last uint64
	answered := false
	for {
		err := client.Events(ctx, api.EventOptions{Since: last, Follow: o.follow},
			func(e api.Event) error {
				answered = true
				last = max(last, e.Seq)
				if !o.wants(&e) {
					return nil
				}
				if err := o.print(&e, out); err != nil {
					return written{err}
				}
				return nil
			})
		var failed written
		switch {
		case errors.As(err, &failed):
			return failed.error
		case ctx.Err() != nil && o.follow:
			return nil
		case !o.follow || !answered:
			return err
		}
		if err != nil {
			fmt.Fprintln(stderr, "jettison: events: asking again:", output.OneLine(err.Error()))
		}
		if !retry.Sleep(ctx, again) {
			return nil
		}
	}
}

// written is an error of who reads what is printed.
type written struct{ error }

func (o *options) wants(e *api.Event) bool {
	return !e.Time.Before(o.since) && (len(o.kinds) == 0 || slices.Contains(o.kinds, string(e.Kind)))
}

// styles of lines by their level.
var styles = map[string]terminal.Style{"warn": terminal.Doubt, "error": terminal.Bad}

func (o *options) print(e *api.Event, out *terminal.Screen) error {
	if o.format.Data() {
		return o.format.Encode(out, e, true)
	}
	line := terminal.Line{
		{Text: output.Time(e.Time), Style: terminal.Dim}, {Text: fmt.Sprintf("  %-9s  ", e.Kind)},
		{Text: e.Message, Style: styles[e.Level]},
		{Text: fieldsText(e.Fields, o.format == output.AsWide)},
	}
	return out.Print(line)
}

// long is how much of a field's value stands in a line.
const long = 120

// quoted is what stands between quotation marks.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// fieldsText are an event's fields as the log has them, sorted by their keys.
func fieldsText(fields map[string]any, whole bool) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value := output.OneLine(fmt.Sprint(fields[key]))
		if number, is := fields[key].(float64); is && number == float64(int64(number)) {
			value = fmt.Sprint(int64(number))
		}
		if runes := []rune(value); !whole && len(runes) > long {
			value = string(runes[:long-1]) + "…"
		}
		if strings.ContainsAny(value, ` "`) { // or a value could pass for further fields
			value = `"` + quoted.Replace(value) + `"`
		}
		b.WriteString("  " + key + "=" + value)
	}
	return b.String()
}
