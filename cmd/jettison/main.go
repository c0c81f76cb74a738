// Command jettison keeps a node alive under pressure. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/agent"
	"jettison/internal/config"
	"jettison/internal/kill"
	"jettison/internal/logpipe"
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
	if len(os.Args) > 1 && os.Args[1] == kill.VictimCommand {
		kill.BeVictim(os.Args[2:])
		return
	}
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
	root := command(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "jettison:", oneLine(err.Error()))
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func command(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "jettison",
		Short: "Keeps a node alive under pressure",
		Long: `jettison keeps a node alive under pressure: it reads cgroup v2 itself, computes the kubelet's memory.available
and, when that falls below its threshold, evicts the one pod that a kubelet would evict, at once.

Exit codes: 0 done; 1 failed; 2 bad usage or configuration. An error is one line on stderr.`,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		// Without a command, and for a word that is none.
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q: see jettison --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(runCommand(stderr), replayCommand(os.Stdin, stdout, stderr), recordsCommand(stdout, stderr), gcCommand(stdout), statsCommand(stdout, stderr), checkCommand(stdout), treeCommand(stdout), versionCommand(stdout))
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
		Use: "version", Short: "Print the version", Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(stdout, version)
			return err
		},
	}
}

func runCommand(stderr io.Writer) *cobra.Command {
	var path, format, level, record, ladder string
	o := agent.Options{Version: version}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Watch this node and evict when it runs out of memory, tasks or disk",
		Long: `run watches this node until it is told to stop (SIGTERM, SIGINT). It needs root, the node's cgroup v2 hierarchy,
its /proc and the socket of its container runtime; docs/use/privileges.md says how a DaemonSet gives it these.

Configuration is one YAML file: kind AgentConfiguration, or a kubelet's own KubeletConfiguration as it is. Without
--config, ` + config.DefaultPath + ` is read if it is there; else the defaults hold: memory.available<100Mi.`,
		Example: "  jettison run\n  jettison run --config /var/lib/kubelet/config.yaml --dry-run",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pipe := logpipe.New(stderr)
			defer pipe.Close(time.Second)
			var err error
			if o.Log, err = logger(pipe, format, level); err != nil {
				return usageError{err}
			}
			if o.Config, err = config.Load(path); err != nil {
				return usageError{err}
			}
			if o.Ladder, err = kill.ParseLadder(ladder); err != nil {
				return usageError{fmt.Errorf("--ladder: %w", err)}
			}
			if record != "" {
				if o.Config.Record, err = filepath.Abs(record); err != nil {
					return usageError{err}
				}
			}
			err = agent.Run(cmd.Context(), o)
			if wrong := (agent.ConfigError{}); errors.As(err, &wrong) {
				return usageError{err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", "configuration file (default "+config.DefaultPath+" if it is there)")
	f.StringVar(&record, "record", "", "record frames of what is seen and done to this file, for jettison replay (default record of the configuration)")
	f.BoolVar(&o.DryRun, "dry-run", false, "decide and log, kill nothing")
	f.StringVar(&format, "log-format", "text", "text or json")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.CgroupMount, "cgroup-mount", "/sys/fs/cgroup", "where the node's cgroup v2 hierarchy is mounted")
	f.StringVar(&o.ProcMount, "proc-mount", "/proc", "where the node's /proc is mounted")
	f.StringVar(&o.HostRoot, "host-root", defaultHostRoot(), "where the node's root directory is seen")
	f.StringVar(&ladder, "ladder", "", "rungs of the kill ladder to use, for comparisons (default all)")
	_ = f.MarkHidden("ladder") // it is there
	return cmd
}

func logger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", format)
}
