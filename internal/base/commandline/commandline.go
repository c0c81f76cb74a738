// Package commandline is what the programs of this module share in how they are called.
//
//	commandline.go  what is wrong with a word that is no command, and with a flag that there is not
//	output.go       Output: the flag --output
//	program.go      Root, Execute, ExitCode: a program's root command, and how it ends; Log: its log
//
// Errors name the command whose help tells more.
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

// Unknown is what is wrong with the first word of a command line that is no command, and with the
// second where the first has commands of its own: also with --help after it, which would else get
// the help of another one.
func Unknown(root *cobra.Command, args []string) error {
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd ||
		args[0] == cobra.ShellCompNoDescRequestCmd) {
		return nil // a shell asks what may follow: cobra adds this command when it runs
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
			if takesValue(found, word) {
				i++
			}
			continue
		}
		name := strings.TrimPrefix(found.CommandPath()+" "+word, root.Name()+" ")
		return fmt.Errorf("unknown command %q%s: see %s --help", name, meant(found, word),
			found.CommandPath())
	}
	return nil
}

// takesValue reports whether the word after a flag is its value.
func takesValue(cmd *cobra.Command, word string) bool {
	name := strings.TrimLeft(word, "-")
	f := cmd.Flag(name)
	if f == nil && len(name) == 1 {
		f = cmd.Flags().ShorthandLookup(name)
	}
	return f != nil && f.NoOptDefVal == ""
}

// meant is the command below another that a word is most like, as a question.
func meant(above *cobra.Command, word string) string {
	var names iter.Seq[string] = func(yield func(string) bool) {
		for _, c := range above.Commands() {
			if c.IsAvailableCommand() && !yield(c.Name()) {
				return
			}
		}
	}
	return nearest.Question(word, names)
}

// WrongFlag is what is wrong with the flags of a command.
func WrongFlag(cmd *cobra.Command, err error) error {
	question := ""
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

// flags are the names of a command's flags.
func flags(cmd *cobra.Command) iter.Seq[string] {
	return func(yield func(string) bool) {
		more := true
		cmd.Flags().VisitAll(func(f *pflag.Flag) { more = more && (f.Hidden || yield(f.Name)) })
	}
}
