package cleanup

import (
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/bridge/kube"
)

// Command returns the command jettison-bridge cleanup.
func Command(version string, stdout io.Writer) *cobra.Command {
	var kubeconfig, namespace string
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Take away what bridges wrote: conditions of nodes and Leases of their load",
		Long: `cleanup takes the conditions Jettison* from every node, and deletes the Leases that tell their load. Take the bridges away
first, or they write them again. It needs an operator's rights: to list nodes and patch their status, to list and delete leases.`,
		Example: "  jettison-bridge cleanup --kubeconfig ~/.kube/config",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := kube.Config(kubeconfig)
			if err != nil {
				return commandline.Usage(err)
			}
			if err := kube.ValidateLeaseNamespace(namespace); err != nil {
				return commandline.Usage(err)
			}
			client, err := kube.New(c, version)
			if err != nil {
				return err
			}
			return Run(cmd.Context(), client, namespace, stdout)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "",
		"file that says where the API is (default the pod's service account)")
	cmd.Flags().StringVar(&namespace, "lease-namespace", kube.DefaultLeaseNamespace,
		"where the Leases are that tell the nodes' load")
	return cmd
}
