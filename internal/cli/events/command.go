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
		Short: "Print what the agent finds, decides and does",
		Long: `events prints what the agent on this node found, decided and did: the lines of its log from info on, the oldest first, as far as it
keeps them (the last 512). -f goes on with those that come; an agent that starts anew is asked again from where it was.

-o json prints them as the socket has them, a JSON object a line: docs/reference/socket.md. docs/reference/logs.md lists the keys.`,
		Example: "  jettison events\n  jettison events -f --kind eviction --kind condition\n  jettison " +
			"events --since 10m -o json | jq .message",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.format, err = output.Format(); err != nil {
				return err
			}
			if o.since, err = flags.ParseSince(since, time.Now()); err != nil {
				return err
			}
			for _, kind := range o.kinds {
				if !slices.Contains(kinds, kind) {
					return commandline.Usage(fmt.Errorf("--kind %.40q: want some of %s%s", kind,
						strings.Join(kinds, ", "),
						nearest.Question(kind, slices.Values(kinds))))
				}
			}
			if o.socket, err = socket.Find(cmd, stderr); err != nil {
				return err
			}
			return run(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with those that come")
	f.StringVar(&since, "since", "", "only what was since: a time with zone, or how long ago")
	f.StringArrayVar(&o.kinds, "kind", nil, "only these: "+strings.Join(kinds, ", "))
	socket.Add(f)
	output.Add(f, "")
	return cmd
}
