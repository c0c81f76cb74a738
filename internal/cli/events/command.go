package events

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/nearest"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison events.
func Command(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var output commandline.Output
	var socket flags.Socket
	var since string
	var o options
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the events of the agent: what it observes, decides and does",
		Long: `events prints the last 128 events of the agent on this node, oldest first. Events are the lines of
its log of level info and higher. With -f it continues with new events; after a restart of the
agent it reconnects and continues after the last event that it printed.

Kinds: ` + strings.Join(kinds, ", ") + `

-o json prints one array, and -o jsonl one object a line, also with -f. Both have the format of the
socket: docs/reference/socket.md.
docs/reference/logs.md lists messages and keys.`,
		Example: "  jettison events\n  jettison events -f --kind eviction --kind condition\n  jettison " +
			"events --since 10m -o jsonl | jq .message",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			format := output.Format
			if o.follow {
				format = output.StreamFormat
			}
			if o.format, err = format(); err != nil {
				return err
			}
			if o.since, err = commandline.ParseSince(since, time.Now()); err != nil {
				return err
			}
			for _, kind := range o.kinds {
				if !slices.Contains(kinds, kind) {
					return commandline.Usage(fmt.Errorf("--kind %.40q: want one of %s%s", kind,
						strings.Join(kinds, ", "),
						nearest.Question(kind, slices.Values(kinds))))
				}
			}
			if o.socket, err = socket.Find(cmd, stderr); err != nil {
				return err
			}
			o.timeout = socket.Timeout
			return run(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "continue with new events")
	f.StringVar(&since, "since", "", "only events since a time with a zone, or an age such as 10m")
	f.StringArrayVar(&o.kinds, "kind", nil, "only events of this kind (repeatable)")
	commandline.Values(f, "kind", kinds...)
	commandline.Values[string](f, "since")
	socket.Add(f)
	socket.AddTimeout(f, 10*time.Second)
	output.AddStream(f)
	return cmd
}
