// Command jettison keeps a node alive under pressure. See README.md. This package has the root
// command and run; all other commands are in packages of internal/cli.
//
//	main.go            the root command, exit codes
//	runcommand.go      run: internal/agent
//	restart.go         restarts run when a kubelet appears
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

	"jettison/internal/base/commandline"
	"jettison/internal/base/printable"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/admit"
	"jettison/internal/cli/check"
	"jettison/internal/cli/config"
	"jettison/internal/cli/deschedule"
	"jettison/internal/cli/events"
	"jettison/internal/cli/explain"
	"jettison/internal/cli/flags"
	"jettison/internal/cli/gc"
	"jettison/internal/cli/health"
	"jettison/internal/cli/records"
	"jettison/internal/cli/replay"
	"jettison/internal/cli/restore"
	"jettison/internal/cli/snapshot"
	"jettison/internal/cli/stats"
	"jettison/internal/cli/status"
	"jettison/internal/cli/top"
	"jettison/internal/cli/tunnel"
	"jettison/internal/cli/ui"
	"jettison/internal/node/kill"
	"jettison/internal/node/selfprotect"
)

// version is set by the linker.
var version = "devel"

// Exit codes.
const (
	exitOK     = commandline.ExitOK
	exitFailed = commandline.ExitFailed
	exitUsage  = commandline.ExitUsage
	// exitRejected is the exit code of admit for a rejected pod.
	exitRejected = 3
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == kill.VictimCommand {
		kill.BeVictim(os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "run" { // the only long-running command
		_ = selfprotect.SmallPages() // the agent calls it again and logs an error
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns its exit code. It prints an error as one line on
// stderr. All output passes through printable, here or in terminal.Screen, so that commands need
// not escape control characters.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	screen := terminal.New(stdout, os.Getenv("NO_COLOR") != "")
	stderr = printable.Writer(stderr)
	err := commandline.Execute(ctx, command(screen, stderr), args)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, admit.ErrRejected):
		return exitRejected
	case errors.Is(err, status.ErrUnhealthy): // the report was printed
		return exitFailed
	}
	if text := flags.Reason(err); commandline.LogsJSON(args) {
		//log: The program ends because of an error.
		//do: Fix the error and start the program again.
		slog.New(slog.NewJSONHandler(stderr, nil)).Error("program failed", "error", text)
	} else {
		fmt.Fprintln(stderr, "jettison:", text)
	}
	return commandline.ExitCode(err)
}

// command returns the root command.
func command(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "jettison",
		Short: "Keeps a node alive under pressure",
		Long: `jettison keeps a node alive under pressure. The agent ("jettison run") reads cgroup v2 and file
systems and computes the kubelet's eviction signals. When a signal crosses its threshold, the agent
evicts the pod that a kubelet would evict: immediately for memory and tasks; for disks only if
garbage collection did not free enough.

By default the agent responds to shortages of memory, disk space and inodes. It responds to swap,
tasks and pressure only if a threshold is configured. On a node with a kubelet, the kubelet handles
disk shortages.

Exit codes: 0 done; 1 failed; 2 bad usage or configuration; 3 pod rejected (admit). An error is one
line on stderr, in JSON with --log-format json.`,
		Example: "  jettison status\n  jettison explain memory.available\n  jettison records --since " +
			"24h\n  jettison run --dry-run",
	}
	commandline.Root(root, version, stdout, stderr)
	root.AddCommand(
		runCommand(stderr), status.Command(stdout), top.Command(os.Stdin, stdout, stderr),
		explain.Command(stdout, stderr),
		replay.Command(os.Stdin, stdout, stderr), records.Command(stdout, stderr),
		gc.Command(os.Stdin, stdout, stderr),
		admit.Command(os.Stdin, stdout, stderr), stats.Command(stdout, stderr),
		check.Command(stdout, stderr),
		snapshot.Command(version, stdout, stderr), events.Command(stdout, stderr),
		ui.Command(version, stdout, stderr),
		health.Command(stdout), config.Command(os.Stdin, stdout), deschedule.Command(stdout, stderr),
		restore.Command(stdout), commandline.Version(root.Name(), version, stdout),
		tunnel.Command(os.Stdin, os.Stdout, stderr), // not stdout, which escapes control characters
	)
	return root
}
