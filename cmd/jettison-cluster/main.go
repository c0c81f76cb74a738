// Command jettison-cluster contains the cluster-wide programs of jettison. It holds the root
// command; each other command is in the internal package of its subject.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
	"jettison/internal/base/printable"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/descheduler/runner"
	"jettison/internal/cluster/nodes"
	"jettison/internal/cluster/replay"
	"jettison/internal/cluster/report"
)

// version is set by the linker.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns its exit code. An error is one line on stderr. All
// output goes through printable, here or in terminal.Screen.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	stderr = printable.Writer(stderr)
	err := commandline.Execute(ctx, command(stdin, terminal.New(stdout, os.Getenv("NO_COLOR") != ""),
		stderr), args)
	switch {
	case err == nil:
	case commandline.LogsJSON(args):
		//log: The program ends because of an error.
		//do: Fix the error and start the program again.
		slog.New(slog.NewJSONHandler(stderr, nil)).Error("program failed", "error",
			output.OneLine(err.Error()))
	default:
		fmt.Fprintln(stderr, "jettison-cluster:", output.OneLine(err.Error()))
	}
	return commandline.ExitCode(err)
}

func command(stdin io.Reader, stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "jettison-cluster",
		Short: "Node lifecycle, taint eviction and descheduling for a cluster",
		Long: `jettison-cluster contains the cluster-wide programs of jettison.

Exit codes: 0 done; 1 failed; 2 bad usage or configuration. An error is one line on stderr, in
JSON with --log-format json.`,
	}
	commandline.Root(root, version, stdout, stderr)
	root.SetIn(stdin)
	root.AddCommand(nodes.Command(version, stderr), report.StatusCommand(stdout),
		report.ExplainCommand(stdout), replay.Command(stdin, stdout),
		runner.Command(version, stdin, stdout, stderr), commandline.Version(root.Name(), version, stdout))
	return root
}
