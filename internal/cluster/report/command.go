package report

import (
	"fmt"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/config"
)

// Command returns the command jettison-cluster explain, which is `nodes explain` too.
func Command(stdout *terminal.Screen) *cobra.Command {
	var address string
	var format commandline.Output
	cmd := &cobra.Command{
		Use:   "explain NODE|POD",
		Short: "Say which pods have to leave a node, when, and because of which taint",
		Long: `explain says of a pod, or of each pod of a node, which taint it does not tolerate for ever, by which toleration it stays how long,
and when it has to go. A pod is NAMESPACE/NAME, or NAME in the namespace default. It asks the jettison-cluster nodes that runs at
--address.`,
		Example: "  jettison-cluster explain node-1\n  jettison-cluster explain shop/web-0 -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return commandline.Usage(
					fmt.Errorf("explain wants one node or pod, got %d arguments: see %s --help", len(args),
						cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			as, err := format.Format()
			if err != nil {
				return err
			}
			var e Explanation
			if err := Fetch(cmd.Context(), address, ExplainPath, args[0], &e); err != nil {
				return err
			}
			return e.Print(stdout, as)
		},
	}
	cmd.Flags().StringVar(&address, "address", config.DefaultAddress,
		"where jettison-cluster nodes serves its status")
	format.Add(cmd.Flags(), "")
	return cmd
}
