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
	l := liveFlags{version: version}
	var format commandline.Output
	var now string
	cmd := &cobra.Command{
		Use:   "deschedule",
		Short: "Evict pods that violate a descheduler policy, or print the plan",
		Long: `deschedule evicts pods that violate a policy of the descheduler (apiVersion
descheduler/v1alpha2).

In a cluster it evicts them through the eviction API: once, or periodically with
--descheduling-interval. With --leader-elect only one of several replicas acts. --dry-run prints
the plan without evicting pods. Repeated plans are a stream, for which -o jsonl replaces -o json.

With --from it reads the objects of a cluster from files. It needs no cluster and evicts nothing.
It prints the evictions in order with their reasons, the skipped pods, and the load of the nodes
before and after. The files contain a v1 List, or a sequence of JSON or YAML documents, as kubectl
prints them: nodes, pods, namespaces, PodDisruptionBudgets, PriorityClasses, PersistentVolumes and
PersistentVolumeClaims. For policies that use measured usage, add NodeMetrics and PodMetrics of
metrics.k8s.io. The same files and --now give the same plan.`,
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
				return commandline.Usage(errors.New("deschedule: --policy is required: the file of a policy"))
			}
			if len(o.From) == 0 && o.Diff == "" && now == "" {
				if l.interval > 0 {
					if _, err := format.StreamFormat(); err != nil {
						return err
					}
				}
				return l.run(cmd.Context(), &o, stdout, stderr)
			}
			if err := offlineFlags(&o, now); err != nil {
				return commandline.Usage(err)
			}
			if name := l.changed(cmd.Flags()); name != "" {
				return commandline.Usage(fmt.Errorf("deschedule: --%s applies to a cluster and cannot be combined with --from",
					name))
			}
			return waitFor(cmd.Context(), func() error { return o.Run(stdout, stderr) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Policy, "policy", "", "file of the policy; - is standard input")
	f.StringVar(&o.Diff, "diff", "", "second policy: print the difference")
	f.StringArrayVar(&o.From, "from", nil,
		"file of objects; - is stdin; repeatable")
	f.StringVar(&now, "now", "",
		"time of the plan, RFC 3339 (default: now)")
	commandline.Values[string](f, "now")
	format.AddStream(f)
	l.add(f)
	cmd.AddCommand(planner.MigrateCommand(stdin, stdout, stderr))
	return cmd
}

// waitFor calls do, which has no context, and returns an error as soon as ctx ends. do is left
// running: the process exits.
func waitFor(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.New("deschedule: interrupted")
	}
}

// offlineFlags checks the flags of a plan from files and sets o.Now.
func offlineFlags(o *planner.Offline, now string) error {
	switch {
	case len(o.From) == 0:
		return errors.New("deschedule: --diff and --now require --from: a file with objects of the cluster")
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
		return fmt.Errorf("--now %q: want a time such as 2006-01-02T15:04:05Z", now)
	}
	return nil
}
