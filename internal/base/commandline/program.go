package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes that all programs have.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2 // bad usage or config
)

// usageError is one that exits with ExitUsage.
type usageError struct{ error }

// Unwrap gives the cause.
func (e usageError) Unwrap() error { return e.error }

// Usage makes an error one of usage or configuration.
func Usage(err error) error { return usageError{err} }

// ExitCode is what a program ends with after Execute.
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

// Root has a program's root command print its version and help on stdout, and leave errors to
// whoever calls Execute.
func Root(root *cobra.Command, version string, stdout, stderr io.Writer) {
	root.SilenceErrors, root.SilenceUsage, root.Version = true, true, version
	root.Args = cobra.ArbitraryArgs // Unknown has seen to them
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage(WrongFlag(cmd, err))
	})
}

// Execute runs one command line.
func Execute(ctx context.Context, root *cobra.Command, args []string) error {
	root.SetArgs(args)
	if err := Unknown(root, args); err != nil {
		return Usage(err)
	}
	return root.ExecuteContext(ctx)
}

// NoArguments is the Args of a command that takes none.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("%s takes no arguments, got %q: see %s --help", cmd.Name(), args[0],
			cmd.CommandPath()))
	}
	return nil
}

// Version is the command that prints a program's version.
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

// Log are the flags of a program's log.
type Log struct{ format, level string }

// Add adds them.
func (l *Log) Add(f *pflag.FlagSet) {
	f.StringVar(&l.format, "log-format", "text", "text or json")
	f.StringVar(&l.level, "log-level", "info", "debug, info, warn or error")
}

// JSON tells that the log is to be JSON.
func (l *Log) JSON() bool { return l.format == "json" }

// Open makes the log that they ask for. An error is one of usage.
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
