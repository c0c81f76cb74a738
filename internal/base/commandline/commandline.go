// Package commandline has the parts of a command line that the programs of this module share.
//
//	commandline.go  errors about unknown commands and flags
//	completion.go   Values: values that a shell completes
//	duration.go     Timeout, Interval: flags of commands that wait or repeat
//	output.go       Output: the flag --output
//	program.go      Root, Execute, ExitCode: a program's root command and its end; Log: its log
//	since.go        ParseSince: the value of --since
//	version.go      Version: the command that prints a program's versions
//
// Errors name the command whose help has more.
package commandline

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jettison/internal/base/nearest"
)

// UnknownCommand returns the error for a first word of a command line that is not a command, and
// for a second one if the first has subcommands. It also does so with --help, for which cobra would
// print the help of another command.
func UnknownCommand(root *cobra.Command, args []string) error {
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd ||
		args[0] == cobra.ShellCompNoDescRequestCmd) {
		return nil // completion by a shell: cobra adds this command when it runs
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	found, rest, _ := root.Find(args)
	if found.Name() == "help" {
		found, rest, _ = root.Find(rest)
	}
	if !found.HasAvailableSubCommands() {
		return nil
	}
	for i := 0; i < len(rest); i++ {
		word := rest[i]
		if len(word) > 0 && word[0] == '-' {
			known, value := flagOf(found, word)
			if !known {
				return nil // cobra reports the flag; the next word may be its value
			}
			if value {
				i++
			}
			continue
		}
		name := strings.TrimPrefix(found.CommandPath()+" "+word, root.DisplayName()+" ")
		return fmt.Errorf("unknown command %q%s: see %s --help", name, suggestion(found, word),
			found.CommandPath())
	}
	return nil
}

// flagOf reports whether the command has a flag, and whether the next word is the flag's value. It
// does not know joined short flags (-ojson), and accepts them.
func flagOf(cmd *cobra.Command, word string) (known, value bool) {
	name, _, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
	if name == "" || len(name) > 1 && word[1] != '-' {
		return true, false
	}
	f := cmd.Flag(name)
	if f == nil && len(name) == 1 {
		f = cmd.Flags().ShorthandLookup(name)
	}
	return f != nil, f != nil && !joined && f.NoOptDefVal == ""
}

// suggestion returns a question for the subcommand with the name most like word.
func suggestion(above *cobra.Command, word string) string {
	var names iter.Seq[string] = func(yield func(string) bool) {
		for _, c := range above.Commands() {
			if c.IsAvailableCommand() && !yield(c.Name()) {
				return
			}
		}
	}
	return nearest.Question(word, names)
}

// wants lists what flags accept, by the type of the flag.
var wants = map[string]string{
	"bool": "true or false", "duration": "a duration such as 1m30s", "float32": "a number",
	"float64": "a number", "int": "a whole number", "int32": "a whole number of at most 32 bits",
}

// FlagError adds a suggestion and the command's help to an error about its flags. The error
// about a value names what the flag accepts; pflag's error has that of Go's parser instead.
func FlagError(cmd *cobra.Command, err error) error {
	question := ""
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		f := invalid.GetFlag()
		if want, ok := wants[f.Value.Type()]; ok {
			err = fmt.Errorf("--%s %.40q: want %s", f.Name, invalid.GetValue(), want)
		}
	}
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		word := unknown.GetSpecifiedName()
		if letters := unknown.GetSpecifiedShortnames(); letters != "" { // -dry-run for --dry-run
			word = letters
		}
		if name := nearest.Name(word, flags(cmd)); name != "" {
			question = fmt.Sprintf(": did you mean --%s?", name)
		}
	}
	return fmt.Errorf("%w%s: see %s --help", err, question, cmd.CommandPath())
}

// flags returns the names of a command's flags.
func flags(cmd *cobra.Command) iter.Seq[string] {
	return func(yield func(string) bool) {
		more := true
		cmd.Flags().VisitAll(func(f *pflag.Flag) { more = more && (f.Hidden || yield(f.Name)) })
	}
}
