package report

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/config"
)

// server is the instance that a command queries.
type server struct {
	address string
	timeout time.Duration
}

func (s *server) add(f *pflag.FlagSet) {
	f.StringVar(&s.address, "address", config.DefaultAddress, "address of jettison-cluster nodes")
	commandline.Values[string](f, "address")
	commandline.Timeout(f, &s.timeout, 30*time.Second, "timeout for the answer")
}

// StatusCommand returns the command jettison-cluster status.
func StatusCommand(stdout *terminal.Screen) *cobra.Command {
	var from server
	var format commandline.Output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the health, taints and queue of all nodes",
		Long: `status prints the health, the last heartbeat, the taints and the zone of each node, and its place in
the queue for a NoExecute taint. It queries the jettison-cluster nodes at --address. A standby
answers with the name of the leader, and status fails.`,
		Example: "  jettison-cluster status\n  jettison-cluster status -o json",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			as, err := format.Format()
			if err != nil {
				return err
			}
			var s Status
			if err := from.fetch(cmd.Context(), StatusPath, "", &s); err != nil {
				return err
			}
			return s.Print(stdout, as)
		},
	}
	from.add(cmd.Flags())
	format.Add(cmd.Flags())
	return cmd
}

// ExplainCommand returns the command jettison-cluster explain.
func ExplainCommand(stdout *terminal.Screen) *cobra.Command {
	var from server
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
			if err := from.fetch(cmd.Context(), ExplainPath, args[0], &e); err != nil {
				return err
			}
			return e.Print(stdout, as)
		},
	}
	cmd.ValidArgsFunction = from.nodeNames
	from.add(cmd.Flags())
	format.Add(cmd.Flags())
	return cmd
}

// completionTimeout bounds the query of a shell that waits for names to complete.
const completionTimeout = 2 * time.Second

// nodeNames completes the name of a node.
func (s *server) nodeNames(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion,
	_ cobra.ShellCompDirective) {
	var all Status
	brief := server{address: s.address, timeout: completionTimeout}
	if len(args) == 0 && brief.fetch(cmd.Context(), StatusPath, "", &all) == nil {
		for i := range all.Nodes {
			names = append(names, all.Nodes[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
