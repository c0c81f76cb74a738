// Package onnode implements the commands of kubectl jettison that run a command of the agent's
// binary in the agent's pod on one node.
package onnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"jettison/internal/base/commandline"
	"jettison/internal/kubectl/kube"
)

// ExitError is the exit code of a command that ran in a pod and printed its own error.
type ExitError int

// Error returns the exit code.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Streams are the files of this program. The command in the pod writes to them unchanged: it escapes
// control characters itself.
type Streams struct{ In, Out, Err *os.File }

// Runner runs commands on nodes.
type Runner struct {
	Flags   *kube.Flags
	Version string
	Streams Streams
}

// commands lists the commands of the agent, with their purpose.
var commands = []struct{ name, short string }{
	{"top", "Show the pods of a node by the memory that killing each would free, live"},
	{"explain", "Show which pod of a node would be evicted next and why"},
	{"records", "List the recorded evictions of a node, or show one in full"},
	{"check", "Show kernel features, sources, kill steps and signals of a node"},
}

// Commands returns the commands that run on one node.
func (r *Runner) Commands() (out []*cobra.Command) {
	for _, c := range commands {
		cmd := &cobra.Command{
			Use:   c.name + " NODE [ARGUMENT...]",
			Short: c.short,
			Long: c.name + ` runs "jettison ` + c.name + `" in the pod of the node's agent, and exits with its exit code. The
arguments after NODE belong to that command (docs/reference/commands.md): flags of kubectl stand
before NODE.

` + c.name + ` needs permission to list pods, and get and create on pods/exec, in the agents' namespace.
These permissions amount to root on the nodes.`,
			Example: "  kubectl jettison " + c.name + " node-1\n  kubectl jettison --context prod " + c.name +
				" node-1 -o json",
			RunE: func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return commandline.Usage(fmt.Errorf("%s: want a node: see %s --help", c.name, cmd.CommandPath()))
				}
				return r.Run(cmd, args)
			},
			ValidArgsFunction: cobra.NoFileCompletions,
		}
		cmd.Flags().SetInterspersed(false)
		out = append(out, cmd)
	}
	return out
}

// Run runs the command of this name on the node args[0], with the other arguments.
func (r *Runner) Run(cmd *cobra.Command, args []string) error {
	node, rest := args[0], args[1:]
	if wrong := validation.IsDNS1123Subdomain(node); len(wrong) > 0 {
		return commandline.Usage(fmt.Errorf("node %.60q: %s", node, wrong[0]))
	}
	if err := checkFlags(cmd, rest); err != nil {
		return commandline.Usage(err)
	}
	client, err := r.Flags.Client(r.Version)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context()) // ends TTY.Next
	defer cancel()
	pod, err := client.AgentPod(ctx, node)
	if err != nil {
		return err
	}
	command := kube.Command{Args: append([]string{cmd.Name()}, rest...), Stdout: r.Streams.Out,
		Stderr: r.Streams.Err}
	if tty := kube.OpenTTY(ctx, r.Streams.In, r.Streams.Out); tty != nil {
		defer tty.Close()
		command.TTY, command.Stdin = tty, r.Streams.In
	}
	code, err := client.Exec(ctx, pod, command)
	switch {
	case err != nil && errors.Is(err, context.Canceled) && cmd.Context().Err() != nil:
		return ExitError(130) // as a shell reports a program that SIGINT ended
	case err != nil:
		return err
	case code != 0:
		return ExitError(code)
	}
	return nil
}

// checkFlags returns an error about a flag of this program on the wrong side of the node: before it
// a flag of the table, after it a flag of kubectl.
func checkFlags(cmd *cobra.Command, rest []string) (err error) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			err = fmt.Errorf("--%s: write flags of jettison %s after the node", f.Name, cmd.Name())
		}
	})
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if slices.ContainsFunc(rest, func(arg string) bool {
			name, _, _ := strings.Cut(arg, "=")
			return name == "--"+f.Name
		}) {
			err = fmt.Errorf("--%s: write flags of kubectl before the node", f.Name)
		}
	})
	return err
}
