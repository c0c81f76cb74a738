package explain

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
	"jettison/stats"
)

// Command returns the command jettison explain.
func Command(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var look flags.Look
	var output commandline.Output
	cmd := &cobra.Command{
		Use:   "explain [SIGNAL]",
		Short: "Show which pod would be evicted next and why, and which pods are protected",
		Long: `explain prints, for each threshold, the pod that the agent would evict if the threshold were met
now. The agent reads its pods and ranks them with the code that it evicts with. explain evicts
nothing.

With a SIGNAL, explain prints the whole ranking for it: each pod, the sort key that places it behind
the previous pod (DECIDED BY), and its usage.

Protected pods follow, grouped by reason: static, mirror and critical pods, protected namespaces,
the agent itself. A pod of unknown priority is ranked with priority 0. If the agent would evict no
pod although pods are ranked, explain prints why: an eviction in progress, the circuit breaker, or a
disk signal that only sets conditions.

Disk usage of pods that is older than 2 minutes is measured again for later answers. Until then, a
line on stderr reports its age.

If the agent does not answer, explain reads the node and ranks the pods itself, without the pod
objects of clients, evictions in progress and the circuit breaker; a line on stderr reports this.`,
		Example: "  jettison explain\n  jettison explain memory.available\n  jettison explain nodefs.available -o wide\n" +
			"  jettison explain memory.available -o json | jq -r '.thresholds[0].ranking[0].pod'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return commandline.Usage(fmt.Errorf("explain takes at most one signal, got %d: see %s --help",
					len(args), cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if err := look.FindOrWarn(cmd, stderr); err != nil {
				return err
			}
			o := options{look: look.Options, format: format}
			if len(args) > 0 {
				o.signal = args[0]
			}
			err = run(cmd.Context(), o, stdout, stderr)
			if errors.Is(err, errUnknownSignal) {
				return commandline.Usage(err)
			}
			return err
		},
	}
	commandline.FirstArgument(cmd, slices.Concat(stats.Signals, []stats.Signal{
		stats.SignalMemoryPressureFull, stats.SignalMemoryPressureSome, stats.SignalIOPressureFull,
		stats.SignalCPUPressureSome})...)
	look.AddPlaces(cmd.Flags())
	look.AddSocket(cmd.Flags(), 5*time.Second)
	output.Add(cmd.Flags())
	return cmd
}
