package commandline

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// valuesKey is the annotation of a flag that does not name a file. It has the values that a shell
// completes, if they are known.
const valuesKey = "jettison_values"

// Values has a shell complete the values of a flag, and no files. Without values it completes
// nothing.
func Values[T ~string](f *pflag.FlagSet, flag string, values ...T) {
	_ = f.SetAnnotation(flag, valuesKey, texts(values)) // fails only for an unknown flag
}

// FirstArgument has a shell complete the first argument of a command, and no files.
func FirstArgument[T ~string](cmd *cobra.Command, values ...T) {
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return texts(values), cobra.ShellCompDirectiveNoFileComp
	}
}

func texts[T ~string](values []T) []string {
	out := make([]string, 0, len(values))
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}

// addCompletion adds the completion of values to a command and all below it. By default a shell
// completes files. It does so for text flags without Values, and for commands with arguments.
func addCompletion(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && !strings.Contains(cmd.Use, " ") {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	add := func(f *pflag.Flag) {
		values, ok := f.Annotations[valuesKey]
		if !ok && strings.HasPrefix(f.Value.Type(), "string") {
			return
		}
		// fails if it was added before
		_ = cmd.RegisterFlagCompletionFunc(f.Name,
			cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, below := range cmd.Commands() {
		addCompletion(below)
	}
}
