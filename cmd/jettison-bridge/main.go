// Command jettison-bridge connects one node's agent to the Kubernetes API. This package holds the
// root command; the subcommands are in internal/bridge. See docs/operate/bridge.md.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
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
	if err == nil {
		return commandline.ExitOK
	}
	text := output.OneLine(strings.ReplaceAll(err.Error(), "\n", "; "))
	if commandline.LogsJSON(args) {
		//log: The program ends because of an error.
		//do: Fix the error and start the program again.
		slog.New(slog.NewJSONHandler(stderr, nil)).Error("program failed", "error", text)
	} else {
		fmt.Fprintln(stderr, "jettison-bridge:", text)
	}
	return commandline.ExitCode(err)
}

func command(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "jettison-bridge",
		Short: "Connect one node's jettison agent to the Kubernetes API",
		Long: `jettison-bridge connects the agent of one node to the Kubernetes API. It sends the agent the
pods of the node with their priorities. It writes the agent's evictions to the API: as pods with
phase Failed and reason Evicted, and as events. It needs no privilege except access to the agent's
socket.

Exit codes: 0 done; 1 failed; 2 bad usage. An error is one line on stderr, in JSON with
--log-format json.`,
		Example: "  jettison-bridge run --node-name node-1 --kubeconfig bridge.conf\n  jettison-bridge " +
			"cleanup --kubeconfig ~/.kube/config",
	}
	commandline.Root(root, version, stdout, stderr)
	root.AddCommand(bridge.Command(version, stderr), cleanup.Command(version, stdout),
		commandline.Version(root.Name(), version, stdout))
	return root
}
