package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of all programs.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2 // invalid usage or configuration
)

// usageError is an error that ends the program with ExitUsage.
type usageError struct{ error }

// Unwrap returns the cause.
func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as one of usage or configuration.
func Usage(err error) error { return usageError{err} }

// ExitCode returns the exit code for an error of Execute.
func ExitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &usage):
		return ExitUsage
	}
	return ExitFailed
}

// Root sets up a program's root command: version and help are printed on stdout, and errors are
// left to the caller of Execute.
func Root(root *cobra.Command, version string, stdout, stderr io.Writer) {
	root.SilenceErrors, root.SilenceUsage, root.Version = true, true, version
	root.Args = cobra.ArbitraryArgs // checked by UnknownCommand
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage(FlagError(cmd, err))
	})
}

// Execute runs one command line.
func Execute(ctx context.Context, root *cobra.Command, args []string) error {
	root.SetArgs(args)
	if err := UnknownCommand(root, args); err != nil { // adds the commands help and completion
		return Usage(err)
	}
	checkArguments(root)
	return root.ExecuteContext(ctx)
}

// checkArguments makes errors of arguments usage errors, for a command and all below it. An empty
// argument is one: it usually comes from an unset variable of a script.
func checkArguments(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if i := slices.Index(args, ""); i >= 0 {
			return Usage(fmt.Errorf("%s: argument %d is empty: see %s --help", cmd.Name(), i+1,
				cmd.CommandPath()))
		}
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			return Usage(err)
		}
		return nil
	}
	for _, below := range cmd.Commands() {
		checkArguments(below)
	}
}

// NoArguments is the Args function of a command without arguments.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("%s takes no arguments, got %q: see %s --help", cmd.Name(), args[0],
			cmd.CommandPath()))
	}
	return nil
}

// Version returns the command that prints a program's version.
func Version(program, version string, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  " + program + " version",
		Args: NoArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(stdout, version)
			return err
		},
	}
}

// Log has the flags of a program's log.
type Log struct{ format, level string }

// Add adds the flags.
func (l *Log) Add(f *pflag.FlagSet) {
	f.StringVar(&l.format, "log-format", "text", "text or json")
	f.StringVar(&l.level, "log-level", "info", "debug, info, warn or error")
}

// JSON reports whether the log format is JSON.
func (l *Log) JSON() bool { return l.format == "json" }

// Open returns the logger that the flags select. An error is a usage error.
func (l *Log) Open(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, Usage(fmt.Errorf("--log-level %q: want debug, info, warn or error", l.level))
	}
	o := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, Usage(fmt.Errorf("--log-format %q: want text or json", l.format))
}
