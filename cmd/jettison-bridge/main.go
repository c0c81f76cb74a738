// Command jettison-bridge ties one node's agent to a cluster's API. See docs/operate/bridge.md. It
// holds the root command; what it does, and the flags of that, are in internal/bridge.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/printable"
	"jettison/internal/bridge"
	"jettison/internal/bridge/cleanup"
)

// version is set by the linker.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns its exit code. An error is one line on stderr.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = printable.Writer(stdout), printable.Writer(stderr)
	err := commandline.Execute(ctx, command(stdout, stderr), args)
	if err != nil {
		fmt.Fprintln(stderr, "jettison-bridge:",
			strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "\n", "; ")), " "))
	}
	return commandline.ExitCode(err)
}

func command(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "jettison-bridge",
		Short: "Ties one node's jettison to the Kubernetes API",
		Long: `jettison-bridge ties the agent of one node to the Kubernetes API: the agent learns the node's pods with their priorities, and
what it evicts is seen there, as a pod that Failed for the reason Evicted, and as events. It needs no privilege but to reach the
agent's socket.

Exit codes: 0 done; 1 failed; 2 bad usage. An error is one line on stderr.`,
		Example: "  jettison-bridge run --node-name node-1 --kubeconfig bridge.conf\n  jettison-bridge " +
			"cleanup --kubeconfig ~/.kube/config",
	}
	commandline.Root(root, version, stdout, stderr)
	root.AddCommand(bridge.Command(version, stderr), cleanup.Command(version, stdout))
	return root
}
