package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/commandline"
	"jettison/internal/events"
	"jettison/internal/nearest"
	"jettison/internal/terminal"
)

func eventsCommand(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var path, output, since string
	var o events.Options
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print what the agent finds, decides and does",
		Long: `events prints what the agent on this node found, decided and did: the lines of its log from info on, the oldest first, as far as it
keeps them (the last 512). -f goes on with those that come; an agent that starts anew is asked again from where it was.

-o json prints them as the socket has them, a JSON object a line: docs/reference/socket.md. docs/reference/logs.md lists the keys.`,
		Example: "  jettison events\n  jettison events -f --kind eviction --kind condition\n  jettison events --since 10m -o json | jq .message",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Format, err = formatOf(output); err != nil {
				return err
			}
			if o.Since, err = sinceOf(since, time.Now()); err != nil {
				return err
			}
			for _, kind := range o.Kinds {
				if !slices.Contains(events.Kinds, kind) {
					return commandline.Usage(fmt.Errorf("--kind %.40q: want some of %s%s", kind, strings.Join(events.Kinds, ", "),
						nearest.Question(kind, slices.Values(events.Kinds))))
				}
			}
			if o.Socket, err = socketOf(cmd, stderr, o.Socket, path); err != nil {
				return err
			}
			return events.Run(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on with those that come")
	f.StringVar(&since, "since", "", "only what was since: a time with zone, or how long ago")
	f.StringArrayVar(&o.Kinds, "kind", nil, "only these: "+strings.Join(events.Kinds, ", "))
	addSocketAlone(cmd, &o.Socket, &path)
	addOutput(cmd, &output)
	return cmd
}
