// Command jettison-cluster is the part of jettison that a cluster has once: it holds flags and wiring; what a command does is in a room of
// internal.
//
//	main.go               the root command, exit codes
//	nodescommand.go       nodes, explain: internal/cluster/{nodes,replay,report}
//	deschedulecommand.go  deschedule: internal/descheduling
//	deschedulelive.go     deschedule in a cluster: internal/cluster/descheduler
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"jettison/internal/commandline"
	"jettison/internal/printable"
	"jettison/internal/show"
	"jettison/internal/terminal"
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
	code := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is one that exits with exitUsage.
type usageError struct{ error }

// Unwrap gives the cause.
func (e usageError) Unwrap() error { return e.error }

// execute runs one command line and returns its exit code. An error is one line on stderr. Whatever is printed goes through printable, here
// or in terminal.Screen.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	stderr = printable.Writer(stderr)
	root := command(stdin, terminal.New(stdout, os.Getenv("NO_COLOR") != ""), stderr)
	root.SetArgs(args)
	err := commandline.Unknown(root, args)
	if err != nil {
		err = usageError{err}
	} else {
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "jettison-cluster:", show.OneLine(err.Error()))
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func command(stdin io.Reader, stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "jettison-cluster",
		Short: "Looks after the nodes and pods of a cluster",
		Long: `jettison-cluster does for a cluster what belongs to no single node.

Exit codes: 0 done; 1 failed; 2 bad usage or configuration. An error is one line on stderr.`,
		SilenceErrors: true, SilenceUsage: true, Version: version,
		Args: cobra.ArbitraryArgs, // commandline.Unknown has seen to them
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{commandline.WrongFlag(cmd, err)} })
	root.AddCommand(nodesCommand(stdin, stdout, stderr), explainCommand(stdout), descheduleCommand(stdin, stdout, stderr),
		versionCommand(stdout))
	return root
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q: see %s --help", cmd.Name(), args[0], cmd.CommandPath())}
	}
	return nil
}

func versionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  jettison-cluster version", Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(stdout, version)
			return err
		},
	}
}
