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

// logFormat is the name of a flag of every command, and formatUsage its meaning.
const (
	logFormat   = "log-format"
	formatUsage = "text or json, for the log and the final error"
)

var logFormats = []string{"text", "json"}

// Root sets up a program's root command: version and help are printed on stdout, and errors are
// left to the caller of Execute. Every command has the flag --log-format.
func Root(root *cobra.Command, version string, stdout, stderr io.Writer) {
	Plugin(root, version, stdout, stderr)
	root.PersistentFlags().String(logFormat, "text", formatUsage)
	Values(root.PersistentFlags(), logFormat, logFormats...)
}

// Plugin works as Root, for a plugin of kubectl: it has no log, and the flags of kubectl.
func Plugin(root *cobra.Command, version string, stdout, stderr io.Writer) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Args = cobra.ArbitraryArgs // checked by UnknownCommand
	// Not cobra's Version, which needs a template to print the version alone. A template may call any
	// method, so that the linker would keep all exported ones. jettison-cluster would be 26 MB larger.
	printVersion := root.Flags().BoolP("version", "v", false, "version for "+root.DisplayName())
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*printVersion {
			return cmd.Help()
		}
		_, err := fmt.Fprintln(stdout, version)
		return err
	}
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
	addCompletion(root)
	return root.ExecuteContext(ctx)
}

// LogsJSON reports whether a command line sets --log-format json. It does not rely on parsed flags,
// because an error of another flag may prevent parsing, and readers of the log need its last line
// in the same format.
func LogsJSON(args []string) bool {
	for i, arg := range args {
		if arg == "--"+logFormat && i+1 < len(args) {
			arg += "=" + args[i+1]
		}
		if arg == "--"+logFormat+"=json" {
			return true
		}
	}
	return false
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
		if f := cmd.Flag(logFormat); f != nil && !slices.Contains(logFormats, f.Value.String()) {
			return Usage(fmt.Errorf("--%s %q: want text or json", logFormat, f.Value))
		}
		if err := checkDurations(cmd); err != nil || check == nil {
			return err
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

// Log opens the log of a program.
type Log struct {
	level string
	flags *pflag.FlagSet
}

// Add adds the flag --log-level to the flags of a command.
func (l *Log) Add(f *pflag.FlagSet) {
	f.StringVar(&l.level, "log-level", "info", "debug, info, warn or error")
	Values(f, "log-level", "debug", "info", "warn", "error")
	l.flags = f
}

// JSON reports whether the log format is JSON. Call it after the command line was parsed, because
// that adds the flags of the root command to those of the command.
func (l *Log) JSON() bool { return l.flags.Lookup(logFormat).Value.String() == "json" }

// Open returns the logger that the flags select. An error is a usage error.
func (l *Log) Open(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, Usage(fmt.Errorf("--log-level %q: want debug, info, warn or error", l.level))
	}
	o := &slog.HandlerOptions{Level: level}
	if l.JSON() {
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}
