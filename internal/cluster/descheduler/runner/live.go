package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/descheduler/planner"
	"jettison/internal/cluster/kubeclient"
)

// live are the flags of deschedule in a cluster. Names and defaults that the descheduler has are
// its own (0.36.0).
type live struct {
	version    string // of the program
	kubeconfig string
	qps        float32
	burst      int
	interval   time.Duration
	dryRun     bool
	elect      bool
	election   kubeclient.Election
	leases     string
	address    string
	json       bool

	flags []string
}

// gcPercent is how much garbage may lie beside the cluster's objects, in percent of them. They are
// most of the memory, and little more comes once they are read: with Go's 100 there would be room
// for as much again, for nothing.
const gcPercent = 40

func (l *live) add(f *pflag.FlagSet) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.StringVar(&l.kubeconfig, "kubeconfig", "",
		"file that says where the cluster's API is (default: as a pod of the cluster is told)")
	own.Float32Var(&l.qps, "client-connection-qps", 50, "requests a second to the API")
	own.IntVar(&l.burst, "client-connection-burst", 100, "requests at once to the API")
	own.DurationVar(&l.interval, "descheduling-interval", 0,
		"from one cycle to the next; 0: one cycle")
	own.BoolVar(&l.dryRun, "dry-run", false, "print the plan, and evict nobody")
	own.BoolVar(&l.elect, "leader-elect", false,
		"only one of several replicas acts; wants --descheduling-interval")
	own.DurationVar(&l.election.LeaseDuration, "leader-elect-lease-duration", 137*time.Second,
		"without a renewal for so long another replica acts")
	own.DurationVar(&l.election.RenewDeadline, "leader-elect-renew-deadline", 107*time.Second,
		"without a renewal for so long this one has stopped")
	own.DurationVar(&l.election.RetryPeriod, "leader-elect-retry-period", 26*time.Second,
		"between two tries")
	own.StringVar(&l.election.Namespace, "leader-elect-resource-namespace", "kube-system",
		"namespace of the Lease")
	own.StringVar(&l.election.Name, "leader-elect-resource-name", "descheduler",
		"name of the Lease: by default the descheduler's, so that the two never act at the same time")
	own.StringVar(&l.leases, "load-namespace", "jettison-system",
		"namespace of the Leases in which the nodes' agents tell their load")
	own.StringVar(&l.address, "address", "127.0.0.1:10258",
		"where metrics and health are told, with an interval; empty: nowhere")
	own.BoolVar(&l.json, "log-json", false, "write the log as JSON")
	own.VisitAll(func(flag *pflag.Flag) { l.flags = append(l.flags, flag.Name) })
	f.AddFlagSet(own)
}

// changed names the first of the flags that is given; empty: none.
func (l *live) changed(f *pflag.FlagSet) string {
	for _, name := range l.flags {
		if f.Changed(name) {
			return name
		}
	}
	return ""
}

func (l *live) check() error {
	switch {
	case l.interval < 0:
		return fmt.Errorf("--descheduling-interval %v: want 0 or more", l.interval)
	case l.elect && l.interval == 0:
		return errors.New("--leader-elect wants --descheduling-interval: one cycle is made by whoever is asked")
	case l.elect && l.dryRun:
		return errors.New("--leader-elect and --dry-run: a dry run does nothing that two could do")
	case l.elect:
		return l.election.Check()
	}
	return nil
}

func (l *live) run(ctx context.Context, o *planner.Offline, stdout *terminal.Screen,
	stderr io.Writer) error {
	policy, err := o.ReadPolicy()
	if err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return commandline.Usage(fmt.Errorf("deschedule: %w", err))
	}
	api, err := kubeclient.Config(kubeclient.Options{
		Kubeconfig: l.kubeconfig, QPS: l.qps, Burst: l.burst, UserAgent: "jettison-cluster/" + l.version,
	})
	if err != nil {
		return fmt.Errorf("deschedule: %w", err)
	}
	run := Options{
		API: api, Policy: policy, Interval: l.interval, DryRun: l.dryRun, Format: o.Format,
		LeaseNamespace: l.leases, Version: l.version,
		Log: slog.New(slog.NewTextHandler(stderr, nil)), Stdout: stdout,
	}
	if l.json {
		run.Log = slog.New(slog.NewJSONHandler(stderr, nil))
	}
	klog.SetSlogLogger(run.Log) // what client-go has to say
	if l.elect {
		run.Election = &l.election
	}
	if l.interval > 0 {
		run.Address = l.address
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	return Run(ctx, run)
}
