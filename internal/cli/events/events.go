// Package events implements jettison events: it prints the events that the agent on this node
// serves on its socket.
package events

import (
	"context"
	"encoding/json"
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
	socket  string
	timeout time.Duration // of a query; 0: the default of api
	since   time.Time     // oldest event; zero: all that the agent has kept
	kinds   []string      // only these kinds; none: all
	follow  bool          // continue with new events until the context ends
	format  output.Format
}

// kinds lists all event kinds.
var kinds = []string{
	string(api.EventAgent), string(api.EventCondition), string(api.EventEviction),
	string(api.EventGate), string(api.EventGarbage),
	string(api.EventMemory), string(api.EventPod), string(api.EventRuntime), string(api.EventSource),
	string(api.EventLost),
}

// reconnectDelay is the time between two attempts to reconnect to an agent that has answered once:
// it may be restarting.
const reconnectDelay = time.Second

// run prints events, oldest first. With follow it reconnects after a lost connection or a restart
// of the agent, and continues after the last event.
func run(ctx context.Context, o options, out *terminal.Screen, stderr io.Writer) error {
	client := api.New(api.Options{Socket: o.socket, Limit: o.timeout})
	var last uint64
	var all []api.Event // of -o json
	answered, lost := false, false
	for {
		err := client.Events(ctx, api.EventOptions{Since: last, Follow: o.follow},
			func(e api.Event) error {
				answered, lost = true, false
				last = max(last, e.Seq)
				if !o.wants(&e) {
					return nil
				}
				if o.format == output.AsJSON {
					all = append(all, e)
					return nil
				}
				if err := o.print(&e, out); err != nil {
					return writeError{err}
				}
				return nil
			})
		var failed writeError
		switch {
		case errors.As(err, &failed):
			return failed.error
		case ctx.Err() != nil && o.follow:
			return nil
		case err == nil && o.format == output.AsJSON:
			return output.EncodeAll(o.format, out, all)
		case !o.follow || !answered:
			return err
		}
		if err != nil && !lost {
			lost = true
			fmt.Fprintln(stderr, "jettison: events: connection to the agent lost, reconnecting until Ctrl-C:",
				output.OneLine(err.Error()))
		}
		if !retry.Sleep(ctx, reconnectDelay) {
			return nil
		}
	}
}

// writeError is an error of writing to stdout.
type writeError struct{ error }

func (o *options) wants(e *api.Event) bool {
	return !e.Time.Before(o.since) && (len(o.kinds) == 0 || slices.Contains(o.kinds, string(e.Kind)))
}

// styles maps a level to the style of its line.
var styles = map[string]terminal.Style{"warn": terminal.Warning, "error": terminal.Bad}

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

// maxValue is the longest printed value of a field in characters, except with -o wide.
const maxValue = 120

// quoter escapes a value for quotation marks.
var quoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// fieldsText formats an event's fields in the format of the log, sorted by key.
func fieldsText(fields map[string]any, whole bool) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value := output.OneLine(valueText(fields[key], whole))
		if number, ok := fields[key].(float64); ok && number == float64(int64(number)) {
			value = fmt.Sprint(int64(number))
		}
		if runes := []rune(value); !whole && len(runes) > maxValue {
			value = string(runes[:maxValue-1]) + "…"
		}
		if strings.ContainsAny(value, ` "`) { // so that no value looks like another field
			value = `"` + quoter.Replace(value) + `"`
		}
		b.WriteString("  " + key + "=" + value)
	}
	return b.String()
}

// valueText formats the value of a field. Of a ranking, it prints the pods only, unless whole is set.
func valueText(value any, whole bool) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	var texts []string
	for _, element := range list {
		object, ok := element.(map[string]any)
		if !ok {
			return fmt.Sprint(value)
		}
		pod, ok := object["pod"].(string)
		if whole || !ok {
			encoded, _ := json.Marshal(object) // decoded from JSON, so it can be encoded
			pod = string(encoded)
		}
		texts = append(texts, pod)
	}
	return "[" + strings.Join(texts, " ") + "]"
}
