// Command kubectl-jettison is a plugin of kubectl that shows the agents of a cluster. It holds the
// root command; each other command is in the internal package of its subject. See
// docs/operate/kubectl.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
	"jettison/internal/base/printable"
	"jettison/internal/base/terminal"
	"jettison/internal/kubectl/kube"
	"jettison/internal/kubectl/onnode"
	"jettison/internal/kubectl/report"
	"jettison/internal/kubectl/status"
)

// version is set by the linker.
var version = "devel"

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go logs errors that it also returns
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := onnode.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	code := execute(ctx, os.Args[1:], terminal.New(os.Stdout, os.Getenv("NO_COLOR") != ""), os.Stderr, streams)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns its exit code. An error is one line on stderr. All
// output of this program goes through printable, here or in terminal.Screen. streams are those of
// commands in pods.
func execute(ctx context.Context, args []string, stdout *terminal.Screen, stderr io.Writer,
	streams onnode.Streams) int {
	stderr = printable.Writer(stderr)
	err := commandline.Execute(ctx, command(stdout, stderr, streams), args)
	var exit onnode.ExitError
	switch {
	case err == nil:
		return commandline.ExitOK
	case errors.As(err, &exit): // the command in the pod has printed the reason
		return int(exit)
	}
	fmt.Fprintln(stderr, "kubectl jettison:", output.OneLine(err.Error()))
	return commandline.ExitCode(err)
}

func command(stdout *terminal.Screen, stderr io.Writer, streams onnode.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:         "kubectl-jettison",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl jettison"},
		Short:       "Show the jettison agents of a cluster",
		Long: `kubectl jettison shows the agents of a cluster: their state and what bridges write to the
Kubernetes API in one table, and the agent of one node through kubectl exec. Put the program into
$PATH as kubectl-jettison.

Exit codes: 0 done; 1 failed; 2 bad usage or configuration; a command on one node has the exit code
of that command. An error is one line on stderr.`,
		Example: "  kubectl jettison status\n  kubectl jettison explain node-1 memory.available\n" +
			"  kubectl jettison report --since 168h",
	}
	commandline.Plugin(root, version, stdout, stderr)
	var flags kube.Flags
	flags.Add(root.PersistentFlags())
	onNode := &onnode.Runner{Flags: &flags, Version: version, Streams: streams}
	root.AddCommand(status.Command(&flags, version, stdout, onNode.Run), report.Command(&flags, version, stdout),
		commandline.Version("kubectl jettison", version, stdout))
	root.AddCommand(onNode.Commands()...)
	return root
}
