// Command jettison-bridge ties one node's agent to a cluster's API. See docs/kubernetes.md. It holds flags and wiring; what it does is in
// internal/bridge.
//
//	main.go     the root command, exit codes
//	run.go      run: internal/bridge
//	cleanup.go  cleanup: internal/bridge/cleanup
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"jettison/internal/printable"
)

// version is set by the linker.
var version = "devel"

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // bad usage or config
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is one that exits with exitUsage.
type usageError struct{ error }

// Unwrap gives the cause.
func (e usageError) Unwrap() error { return e.error }

// execute runs one command line and returns its exit code. An error is one line on stderr.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = printable.Writer(stdout), printable.Writer(stderr)
	root := command(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "jettison-bridge:", strings.Join(strings.Fields(err.Error()), " "))
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func command(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "jettison-bridge",
		Short: "Ties one node's jettison to the Kubernetes API",
		Long: `jettison-bridge ties the agent of one node to the Kubernetes API: the agent learns the node's pods with their priorities, and
what it evicts is seen there, as a pod that Failed for the reason Evicted, and as events. It needs no privilege but to reach the
agent's socket.

Exit codes: 0 done; 1 failed; 2 bad usage. An error is one line on stderr.`,
		Example:       "  jettison-bridge run --node-name node-1 --kubeconfig bridge.conf\n  jettison-bridge cleanup --kubeconfig ~/.kube/config",
		SilenceErrors: true, SilenceUsage: true, Version: version,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no command %q: see jettison-bridge --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(runCommand(stderr), cleanupCommand(stdout))
	return root
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q: see %s --help", cmd.Name(), args[0], cmd.CommandPath())}
	}
	return nil
}
