// Package status implements kubectl jettison status: the nodes of a cluster in one table.
//
//	command.go  Command: kubectl jettison status
//	table.go    the table
package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/kubectl/fleet"
	"jettison/internal/kubectl/kube"
	"jettison/internal/kubectl/printer"
)

// refresh is the shortest time between two tables with --watch.
const refresh = 2 * time.Second

// options configures a run of the command.
type options struct {
	client       *kube.Client
	selection    kube.Selection
	format       printer.Format
	problemsOnly bool
	watch        bool
}

// Command returns the command status. onNode runs jettison status on one node.
func Command(flags *kube.Flags, version string, stdout *terminal.Screen,
	onNode func(cmd *cobra.Command, args []string) error) *cobra.Command {
	var o options
	var format printer.Flag
	cmd := &cobra.Command{
		Use:   "status [NODE [ARGUMENT...]]",
		Short: "Show the agents, conditions, headroom, last evictions and problems of all nodes",
		Long: `status prints a line for each node:

  - AGENT: the version of the agent. "image" marks the tag of its image, which is shown without a
    bridge. "no pod": the node has no pod of the agent
  - PRESSURE: the conditions Jettison* that are True or Unknown
  - NEAREST THRESHOLD: the threshold with the least headroom, in percent of its signal's capacity.
    It is negative while the threshold is met
  - HEADROOM: the distance to the highest threshold of memory.available
  - STALLED: the share of the last minute in which some tasks stalled for memory, IO and CPU
  - LAST EVICTION: its age and signal. "none": the agent has no eviction in its history
  - PROBLEMS: their number and the first one; -o wide prints all

Nodes with problems are first, then those nearest to a threshold. "-" means unknown, and the last
lines give the reasons. Agents appear through their pods, all other columns through what bridges
write to the Kubernetes API (docs/operate/bridge.md). A load older than 11 minutes is unknown.

With a NODE, the command runs "jettison status" in the pod of the node's agent. The arguments after
NODE belong to that command.

status needs permission to list nodes and events, pods in the agents' namespace, and leases in
jettison-system. -w also needs permission to watch them.`,
		Example: "  kubectl jettison status\n  kubectl jettison status --problems -l pool=batch\n" +
			"  kubectl jettison status -w\n  kubectl jettison status -o name --problems\n" +
			"  kubectl jettison status -o jsonpath='{.nodes[*].agent.version}'\n" +
			"  kubectl jettison status node-1 -o wide",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				return onNode(cmd, args)
			}
			if o.format, err = format.Format(); err != nil {
				return err
			}
			if o.watch && !o.format.Table {
				return commandline.Usage(errors.New("-w prints tables: omit --output"))
			}
			if _, err := labels.Parse(o.selection.Labels); err != nil {
				return commandline.Usage(fmt.Errorf("--selector: %w", err))
			}
			if o.client, err = flags.Client(version); err != nil {
				return err
			}
			return o.run(cmd.Context(), stdout)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&o.selection.Labels, "selector", "l", "",
		"label selector of nodes (a=b, a!=b, a in (b,c))")
	commandline.Values[string](f, "selector")
	f.BoolVar(&o.problemsOnly, "problems", false, "only nodes with problems")
	f.BoolVarP(&o.watch, "watch", "w", false, "print the table again after changes")
	format.Add(f, true)
	return cmd
}

func (o *options) run(ctx context.Context, stdout *terminal.Screen) error {
	if o.watch {
		return o.client.Follow(ctx, o.selection, refresh, o.repaint(stdout))
	}
	objects, err := o.client.List(ctx, o.selection)
	if err != nil {
		return err
	}
	s := o.describe(objects)
	if o.format.Table {
		return stdout.Print(lines(s, width(stdout, o.format.Wide), o.format.Wide)...)
	}
	names := make([]string, len(s.Nodes))
	for i := range s.Nodes {
		names[i] = "node/" + s.Nodes[i].Name
	}
	return o.format.Data(stdout, s, names)
}

// describe describes the selected nodes.
func (o *options) describe(objects *fleet.Objects) *fleet.Status {
	s := fleet.Of(time.Now(), objects)
	if o.problemsOnly {
		s.Nodes = slices.DeleteFunc(s.Nodes, func(n fleet.Node) bool { return len(n.Problems) == 0 })
	}
	return s
}

// repaint returns a function that prints the table after a change: over the previous one on a
// terminal, or else after a separating line.
func (o *options) repaint(stdout *terminal.Screen) func(*fleet.Objects, error) error {
	var last []terminal.Line
	return func(objects *fleet.Objects, err error) error {
		var shown []terminal.Line
		if err != nil {
			shown = append([]terminal.Line{terminal.Text(terminal.Bad, "retrying, the table is stale: %s",
				output.OneLine(err.Error()))}, last...)
		} else {
			last = lines(o.describe(objects), width(stdout, o.format.Wide), o.format.Wide)
			shown = last
		}
		if stdout.Terminal() {
			return stdout.Repaint(shown)
		}
		return stdout.Print(append(slices.Clone(shown), terminal.Text(terminal.Plain, "%s",
			strings.Repeat("-", 80)))...)
	}
}

// width returns the width of the table; 0: unlimited.
func width(stdout *terminal.Screen, wide bool) int {
	if wide {
		return 0
	}
	return stdout.Width()
}
