// Package report implements kubectl jettison report: the evictions of a cluster.
//
//	command.go  Command: kubectl jettison report
//	collect.go  reads the records of agents, and events
//	table.go    the tables
package report

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/kubectl/kube"
	"jettison/internal/kubectl/printer"
)

// Command returns the command report.
func Command(flags *kube.Flags, version string, stdout *terminal.Screen) *cobra.Command {
	o := options{}
	var format printer.Flag
	var since string
	cmd := &cobra.Command{
		Use:   "report [NODE...]",
		Short: "Count the evictions, and those of dry runs, by node, namespace, signal and pod",
		Long: `report counts the evictions since a time. WOULD EVICT counts the evictions that agents in a dry run
only recorded: it answers which pods jettison would have evicted. A record of a dry run stands for all
shortages of a day, of which some may be older than --since.

The evictions are from the records of agents: report runs "jettison records" in the agents' pods, 32
at a time. The last lines name the nodes that did not answer. For those, the evictions are from the
events of bridges, which the API server keeps for an hour by default, and which dry runs do not send.

-o wide also lists the evictions. -o json and yaml have all of them.

report needs the permissions of status, and get and create on pods/exec in the agents' namespace,
which amount to root on the nodes. With --events-only it needs no exec.`,
		Example: "  kubectl jettison report --since 168h\n  kubectl jettison report --since 24h -l pool=batch -o wide\n" +
			"  kubectl jettison report node-1 node-2 -o json | jq '.evictions[] | select(.dryRun)'",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.format, err = format.Format(); err != nil {
				return err
			}
			if since == "" {
				return commandline.Usage(errors.New("--since: want a time or an age, got an empty text"))
			}
			if o.since, err = commandline.ParseSince(since, time.Now()); err != nil {
				return err
			}
			if len(args) > 0 && o.selection.Labels != "" {
				return commandline.Usage(errors.New("report takes nodes or --selector, got both"))
			}
			if _, err := labels.Parse(o.selection.Labels); err != nil {
				return commandline.Usage(fmt.Errorf("--selector: %w", err))
			}
			o.selection.Names = args
			if o.client, err = flags.Client(version); err != nil {
				return err
			}
			return o.run(cmd.Context(), stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "24h", "age (168h) or time with a zone (2026-11-21T07:00:00Z)")
	commandline.Values[string](f, "since")
	f.StringVarP(&o.selection.Labels, "selector", "l", "",
		"label selector of nodes (a=b, a!=b, a in (b,c))")
	commandline.Values[string](f, "selector")
	f.BoolVar(&o.eventsOnly, "events-only", false, "read only events, exec nothing")
	commandline.Timeout(f, &o.timeout, 20*time.Second, "timeout for each node")
	format.Add(f, false)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}
