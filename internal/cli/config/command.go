package config

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/cli/flags"
	"jettison/internal/node/config"
)

// Command returns the command jettison config.
func Command(stdin *os.File, stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file, print what holds, or a file to begin with",
		Args:  commandline.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(checkCommand(stdin, stdout), printCommand(stdout), defaultCommand(stdout))
	return cmd
}

func checkCommand(stdin *os.File, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|-",
		Short: "Say whether a configuration file is right",
		Long: `check reads a configuration file, of the agent's own or a kubelet's, and says whether run would take it: each field, its
value, and who may write to the file. - is standard input. It looks at nothing else of the node: whether a threshold is below what
the node has is seen when the agent starts.

Exit code 2: it is wrong; the line on stderr says file, line, field, and what.`,
		Example: "  jettison config check /etc/jettison/config.yaml\n  jettison config check - < config.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return commandline.Usage(
					fmt.Errorf("config check takes one file, or - for standard input: see %s --help",
						cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := check(cmd.Context(), args[0], stdin, stdout); err != nil {
				return commandline.Usage(err)
			}
			return nil
		},
	}
}

func printCommand(stdout io.Writer) *cobra.Command {
	var places config.Places
	var output string
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print every value that holds on this node, and where it comes from",
		Long: `print reads the configuration as run does, and prints every value with where it comes from: default, kubeletFile,
dropIn, kubeletFlag, ownFile, environment, flag, or found (the runtime's socket). What a later one of these says counts.
A running agent that has not taken a change yet says so in its log and its state.

-o yaml prints a file of the agent's own that comes to the same, with the origins as comments.`,
		Example: "  jettison config print\n  jettison config print -f new.yaml -o json",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(formats, output) {
				return commandline.Usage(fmt.Errorf("--output %q: want one of %v", output, formats))
			}
			l, err := config.Find(cmd.Context(), places)
			if err != nil {
				return commandline.Usage(err)
			}
			return printSettings(l, output, stdout)
		},
	}
	f := cmd.Flags()
	flags.AddConfig(f, &places)
	flags.AddProcMount(f, &places.ProcMount)
	f.StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return cmd
}

func defaultCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "default",
		Short: "Print a complete configuration file: every field, its default, and what it is for",
		Long: `default prints a configuration file of the agent's own with every field. Each value in it is the default, so keep what you
change: what a file does not set is the kubelet's, where the node has one, and else the default.`,
		Example: "  jettison config default > /etc/jettison/config.yaml",
		Args:    commandline.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(stdout, config.DefaultFile)
			return err
		},
	}
}
