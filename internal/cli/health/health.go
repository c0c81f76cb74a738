// Package health implements jettison health: it checks whether the agent on this node is alive, for
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
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether the agent is alive, for probes",
		Long: `health checks whether the agent on this node is alive (/healthz), or with --ready whether it watches
the node now (/readyz), and prints ok or the reason. Use health for exec probes of containers
without a shell. For the state of the node, use "jettison status".

While the agent runs, an invalid configuration file does not make the check fail. If the field
socket has changed since the agent started, health finds the agent's socket in the file socket.path
of stateDir.

Exit codes: 0 alive, or ready; 1 not, or no answer within --timeout; 2 no answer, and the
configuration is invalid.`,
		Example: "  jettison health\n  jettison health --ready --timeout 2s",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sockets, configErr, err := socket.Candidates(cmd.Context())
			if err != nil {
				return err
			}
			if err := anyAlive(cmd.Context(), sockets, socket.Timeout, ready); err != nil {
				return cmp.Or(configErr, err)
			}
			_, err = fmt.Fprintln(stdout, "ok")
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&ready, "ready", false, "check whether the agent watches the node, not only whether it is alive")
	socket.Add(f)
	socket.AddTimeout(f, 5*time.Second)
	return cmd
}

// anyAlive queries the sockets in turn until one answers; it skips empty paths. limit bounds all
// queries together. It returns the error of the first socket.
func anyAlive(ctx context.Context, sockets []string, limit time.Duration,
	ready bool) (first error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for i, path := range sockets {
		if path == "" || slices.Contains(sockets[:i], path) {
			continue
		}
		err := alive(ctx, api.New(api.Options{Socket: path, Limit: limit}), ready)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("health: %w", err)
		if errors.As(err, new(*api.StatusError)) { // an agent answered that it is not healthy
			return err
		}
		first = cmp.Or(first, err)
	}
	return cmp.Or(first, flags.NoSocket("health"))
}

// alive queries an agent. An older agent has no health paths; its state proves that it is alive.
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
