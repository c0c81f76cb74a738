package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/bridge/kube"
)

// Command returns the command jettison-bridge cleanup.
func Command(version string, stdout io.Writer) *cobra.Command {
	var kubeconfig, namespace string
	var dryRun bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove node conditions and load Leases that bridges wrote",
		Long: `cleanup removes the conditions Jettison* from all nodes and deletes the Leases with their load.

Remove the bridges first, or they write both again. cleanup needs permission to list nodes, to patch
nodes/status, and to list and delete leases. --dry-run needs permission to list both.`,
		Example: "  jettison-bridge cleanup --dry-run\n" +
			"  jettison-bridge cleanup --kubeconfig ~/.kube/config",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := kube.ConfigOfUser(kubeconfig)
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
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			err = Run(ctx, client, namespace, dryRun, stdout)
			if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("not finished within %v, run it again or raise --timeout: %w", timeout, err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "",
		"path of the kubeconfig (default: $KUBECONFIG, in-cluster, ~/.kube/config)")
	cmd.Flags().StringVar(&namespace, "lease-namespace", kube.DefaultLeaseNamespace,
		"namespace of the Leases with the nodes' load")
	commandline.Values[string](cmd.Flags(), "lease-namespace")
	commandline.Timeout(cmd.Flags(), &timeout, 10*time.Minute, "timeout for the whole command")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be removed, remove nothing")
	return cmd
}
