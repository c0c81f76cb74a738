// Command jettison keeps a node alive under pressure. See README.md. It holds the root command and
// run; every other command stands beside what it does, in a package of internal.
//
//	main.go            the root command, exit codes
//	runcommand.go      run: internal/agent
//	anew.go            run, once more, when a kubelet has come
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
	"jettison/internal/base/output"
	"jettison/internal/base/printable"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/admit"
	"jettison/internal/cli/check"
	"jettison/internal/cli/config"
	"jettison/internal/cli/deschedule"
	"jettison/internal/cli/events"
	"jettison/internal/cli/explain"
	"jettison/internal/cli/gc"
	"jettison/internal/cli/health"
	"jettison/internal/cli/records"
	"jettison/internal/cli/replay"
	"jettison/internal/cli/restore"
	"jettison/internal/cli/snapshot"
	"jettison/internal/cli/stats"
	"jettison/internal/cli/status"
	"jettison/internal/cli/top"
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
	// exitRefused is the answer of admit, which was printed.
	exitRefused = 3
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == kill.VictimCommand {
		kill.BeVictim(os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "run" { // which stays
		_ = selfprotect.SmallPages() // it says so again, or lives with them
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns its exit code. An error is one line on stderr. Whatever
// is printed goes through printable, here or in terminal.Screen: there is no other place that has
// to think of terminals.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	screen := terminal.New(stdout, os.Getenv("NO_COLOR") != "")
	stderr = printable.Writer(stderr)
	err := commandline.Execute(ctx, command(screen, stderr), args)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, admit.ErrRejected):
		return exitRefused
	case errors.Is(err, status.ErrUnhealthy): // it was said
		return exitFailed
	}
	if text := output.OneLine(err.Error()); logsJSON(args) {
		slog.New(slog.NewJSONHandler(stderr, nil)).Error("jettison ends", "error", text)
	} else {
		fmt.Fprintln(stderr, "jettison:", text)
	}
	return commandline.ExitCode(err)
}

// logsJSON reports whether a command line asks for a log in JSON. What is wrong with another flag
// may keep that one from being parsed, and who reads the log wants its end in the same format.
func logsJSON(args []string) bool {
	for i, arg := range args {
		if arg == "--log-format=json" || arg == "--log-format" && i+1 < len(args) && args[i+1] == "json" {
			return true
		}
	}
	return false
}

func command(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "jettison",
		Short: "Keeps a node alive under pressure",
		Long: `jettison keeps a node alive under pressure: it reads cgroup v2 and file systems itself and computes the kubelet's eviction
signals. By default it acts on memory, disks and inodes; on swap, tasks and pressure only where a threshold is configured. When
a signal crosses its threshold, it evicts the one pod that a kubelet would evict: at once for memory and tasks, and for a disk where
removing garbage was not enough. Beside a kubelet disks are the kubelet's.

Exit codes: 0 done; 1 failed; 2 bad usage or configuration; 3 refused (admit). An error is one line on stderr, of JSON
where --log-format is json.`,
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
	)
	return root
}
