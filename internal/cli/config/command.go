package config

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
	"jettison/internal/cli/flags"
	"jettison/internal/node/config"
)

// Command returns the command jettison config.
func Command(stdin *os.File, stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file, print the effective configuration or a default file",
		Args:  commandline.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(checkCommand(stdin, stdout), printCommand(stdout), defaultCommand(stdout))
	return cmd
}

func checkCommand(stdin *os.File, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|-",
		Short: "Check whether a configuration file is valid",
		Long: `check reads a configuration file of the agent or of a kubelet, or standard input (-), and reports
whether "jettison run" accepts it: each field, its value, and the permissions of the file. It reads
nothing else on the node: the agent compares thresholds with the node's capacity when it starts.

Exit code 2: the file is invalid; the line on stderr names the file, line, field and fault.`,
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
	var format commandline.Output
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the effective configuration of this node, and the origin of each value",
		Long: `print reads the configuration like "jettison run" and prints each value with its origin. Origins, in
this order (later ones override earlier ones): default, kubeletFile, dropIn, kubeletFlag, ownFile,
environment, flag; or found (the runtime's socket). A running agent reports configuration changes
that it has not applied in its log and in "jettison status".

-o yaml prints an equivalent configuration file of the agent, with the origins as comments.`,
		Example: "  jettison config print\n  jettison config print --config new.yaml -o json",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			as, err := format.Format()
			if err != nil {
				return err
			}
			l, err := config.Find(cmd.Context(), places)
			if err != nil {
				return commandline.Usage(err)
			}
			return printSettings(l, as, stdout)
		},
	}
	f := cmd.Flags()
	flags.AddConfig(f, &places)
	flags.AddProcMount(f, &places.ProcMount)
	format.AddFormats(f, output.AsTable, output.AsJSON, output.AsYAML)
	return cmd
}

func defaultCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "default",
		Short: "Print a complete configuration file: every field, its default and its purpose",
		Long: `default prints a configuration file of the agent with every field set to its default. Keep only the
fields that you change: for a field that the file does not set, the agent uses the value of the
node's kubelet, or the default if the node has no kubelet.`,
		Example: "  jettison config default > /etc/jettison/config.yaml",
		Args:    commandline.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(stdout, config.DefaultFile)
			return err
		},
	}
}
