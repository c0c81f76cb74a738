package report

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/config"
)

// Command returns the command jettison-cluster explain, also available as `nodes explain`.
func Command(stdout *terminal.Screen) *cobra.Command {
	var address string
	var timeout time.Duration
	var format commandline.Output
	cmd := &cobra.Command{
		Use:   "explain NODE|POD",
		Short: "Explain which pods must leave a node, when, and because of which taint",
		Long: `explain prints, for a pod or for each pod of a node, the node's NoExecute taints, the matching
tolerations, and the time by which the pod must leave. A pod is NAMESPACE/NAME, or NAME in the
namespace default. It queries the jettison-cluster nodes at --address.`,
		Example: "  jettison-cluster explain node-1\n  jettison-cluster explain shop/web-0 -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return commandline.Usage(
					fmt.Errorf("explain takes one node or pod, got %d arguments: see %s --help", len(args),
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
			if err := Fetch(cmd.Context(), timeout, address, ExplainPath, args[0], &e); err != nil {
				return err
			}
			return e.Print(stdout, as)
		},
	}
	cmd.Flags().StringVar(&address, "address", config.DefaultAddress,
		"address of jettison-cluster nodes")
	commandline.Values[string](cmd.Flags(), "address")
	commandline.Timeout(cmd.Flags(), &timeout, fetchTimeout, timeoutUsage)
	format.Add(cmd.Flags(), "")
	return cmd
}
