package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/descheduler/planner"
)

// Command returns the command jettison-cluster deschedule.
func Command(version string, stdin io.Reader, stdout *terminal.Screen,
	stderr io.Writer) *cobra.Command {
	o := planner.Offline{Stdin: stdin}
	l := live{version: version}
	var format commandline.Output
	var now string
	cmd := &cobra.Command{
		Use:   "deschedule",
		Short: "Evict pods that should not be where they are, or plan to",
		Long: `deschedule finds pods that should not be where they are, by a policy of the descheduler (apiVersion descheduler/v1alpha2).

In a cluster it evicts them through the eviction API: once, or again and again with --descheduling-interval, by one of several replicas with
--leader-elect. --dry-run prints the very plan that it would carry out.

With --from it reads the objects of a cluster from files, needs no cluster and evicts nothing: it prints which pods would be evicted, in
which order and why, which rules keep others, and how loaded nodes are before and after. Objects are a v1 List, or JSON or YAML
documents one after the other: nodes, pods, namespaces, disruption budgets, priority classes, volumes and claims, as kubectl prints
them; NodeMetrics and PodMetrics of metrics.k8s.io where a policy goes by real use. The same files and --now give the same plan.`,
		Example: `  jettison-cluster deschedule --policy policy.yaml --kubeconfig ~/.kube/config --dry-run
  jettison-cluster deschedule --policy policy.yaml --descheduling-interval 5m --leader-elect
  kubectl get nodes,pods,namespaces,pdb,pc,pv,pvc -A -o json > objects.json
  jettison-cluster deschedule --policy policy.yaml --from objects.json
  jettison-cluster deschedule --policy policy.yaml --from objects.json --now 2026-11-23T12:00:00Z -o json
  jettison-cluster deschedule --policy policy.yaml --from objects.json --diff other.yaml`,
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Format, err = format.Format(); err != nil {
				return err
			}
			if o.Policy == "" {
				return commandline.Usage(errors.New("deschedule: --policy is missing: the file of a policy"))
			}
			if len(o.From) == 0 && o.Diff == "" && now == "" {
				return l.run(cmd.Context(), &o, stdout, stderr)
			}
			if err := offlineFlags(&o, now); err != nil {
				return commandline.Usage(err)
			}
			if name := l.changed(cmd.Flags()); name != "" {
				return commandline.Usage(fmt.Errorf("deschedule: --%s is for a cluster, and --from for files",
					name))
			}
			return until(cmd.Context(), func() error { return o.Run(stdout, stderr) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Policy, "policy", "", "file of the policy; - is standard input")
	f.StringVar(&o.Diff, "diff", "", "file of another policy: print what it would do otherwise")
	f.StringArrayVar(&o.From, "from", nil,
		"file of objects of the cluster; - is standard input; may be given several times")
	f.StringVar(&now, "now", "",
		"the time that ages are counted to, as 2006-01-02T15:04:05Z (default the clock's)")
	format.Add(f, "")
	l.add(f)
	cmd.AddCommand(planner.MigrateCommand(stdin, stdout, stderr))
	return cmd
}

// until does what asks no context, and does not wait for it once that ends: the process does, too.
func until(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.New("deschedule: it was ended before it was done")
	}
}

// offlineFlags checks what cannot be left to the flags themselves.
func offlineFlags(o *planner.Offline, now string) error {
	switch {
	case len(o.From) == 0:
		return errors.New("deschedule: --from is missing, which --diff and --now are for: a file of the cluster's objects")
	}
	readers := 0
	for _, path := range append([]string{o.Policy, o.Diff}, o.From...) {
		if path == "-" {
			readers++
		}
	}
	if readers > 1 {
		return errors.New("deschedule: only one file can be standard input")
	}
	o.Now = time.Now()
	if now == "" {
		return nil
	}
	var err error
	if o.Now, err = time.Parse(time.RFC3339, now); err != nil {
		return fmt.Errorf("--now %q: want a time as 2006-01-02T15:04:05Z", now)
	}
	return nil
}
