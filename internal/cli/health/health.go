// Package health is jettison health: it asks the agent on this node whether it is alive, for
// probes.
package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"jettison/api"
	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison health.
func Command(stdout *terminal.Screen) *cobra.Command {
	var socket flags.Socket
	var ready bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Tell by the exit code whether the agent is alive, for probes",
		Long: `health asks the agent on this node whether it is alive (/healthz), or with --ready whether it watches the node at this moment
(/readyz), and prints ok or why not. It is for the exec probes of a container that has no shell. Whether the node is well is another
question: jettison status.

A configuration that is wrong is no matter to an agent that runs, and so it is none to this command; nor is a socket that the agent takes
at its next start only: stateDir says where it listens (socket.path).

Exit codes: 0 it is; 1 it is not, or does not answer within --limit; 2 it does not, and its configuration is wrong.`,
		Example: "  jettison health\n  jettison health --ready --limit 2s",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit <= 0 || limit > time.Minute {
				return commandline.Usage(fmt.Errorf("--limit %v: want more than 0 and at most 1m", limit))
			}
			sockets, wrong, err := socket.Candidates(cmd.Context())
			if err != nil {
				return err
			}
			if err := anyAlive(cmd.Context(), sockets, limit, ready); err != nil {
				return cmp.Or(wrong, err)
			}
			_, err = fmt.Fprintln(stdout, "ok")
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&ready, "ready", false, "ask whether it watches the node, not only whether it is alive")
	f.DurationVar(&limit, "limit", 5*time.Second, "how long the answer may take")
	socket.Add(f)
	return cmd
}

// anyAlive asks at each of some sockets, "" for none, until one answers, within a limit for all.
// The error is of the first.
func anyAlive(ctx context.Context, sockets []string, limit time.Duration,
	ready bool) (first error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for i, at := range sockets {
		if at == "" || slices.Contains(sockets[:i], at) {
			continue
		}
		err := alive(ctx, api.New(api.Options{Socket: at, Limit: limit}), ready)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("health: %w", err)
		if errors.As(err, new(*api.StatusError)) { // it is one, and says of itself that it is not well
			return err
		}
		first = cmp.Or(first, err)
	}
	return cmp.Or(first, flags.NoSocket("health"))
}

// alive asks an agent. An older one has no such paths: its state is an answer as well.
func alive(ctx context.Context, c *api.Client, ready bool) error {
	ask := c.Health
	if ready {
		ask = c.Ready
	}
	err := ask(ctx)
	if status := (*api.StatusError)(nil); errors.As(err, &status) &&
		status.Status == http.StatusNotFound {
		_, err = c.State(ctx)
	}
	return err
}
