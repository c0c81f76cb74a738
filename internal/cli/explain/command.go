package explain

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison explain.
func Command(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var look flags.Look
	var output commandline.Output
	cmd := &cobra.Command{
		Use:   "explain [SIGNAL]",
		Short: "Say who would be evicted next and why, and who is protected by what",
		Long: `explain asks the agent whom each of its thresholds would have evicted if it asked for a victim now: the agent looks at its pods and
ranks them by the code that it decides by, so that this is the pod that would really go. Nothing comes of asking. With a SIGNAL it prints
that one's whole ranking: each pod with its place, the key by which it comes after the one before, and what that pod uses.

Below it are the pods that are never victims, by the reason: static, mirror or critical pods, protected namespaces, this agent. Where a
priority is unknown nobody has told it, and the pod counts as one of 0. Where nobody would go although a pod is ranked first, it says why:
an eviction under way, the breaker, a disk that only sets conditions.

Where no agent answers, the pods are ranked by a look of this command's own, which knows less; a line on stderr says so.`,
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
	look.AddPlaces(cmd.Flags())
	look.AddSocket(cmd.Flags())
	output.Add(cmd.Flags(), "")
	return cmd
}
