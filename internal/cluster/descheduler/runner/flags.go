package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// liveFlags are the flags of deschedule in a cluster. Flags of the descheduler keep their names and
// defaults (0.36.0).
type liveFlags struct {
	version    string // version of this program
	kubeconfig string
	qps        float32
	burst      int
	interval   time.Duration
	dryRun     bool
	elect      bool
	election   kubeclient.Election
	leases     string
	address    string
	log        commandline.Log

	flags []string
}

// gcPercent is GOGC unless the environment sets it. Objects of the cluster make up most of the
// heap, and little is allocated after the initial list: the default of 100 would waste as much
// memory again.
const gcPercent = 40

func (l *liveFlags) add(f *pflag.FlagSet) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.StringVar(&l.kubeconfig, "kubeconfig", "", kubeclient.KubeconfigUsage)
	own.Float32Var(&l.qps, "client-connection-qps", 50, "API requests per second")
	own.IntVar(&l.burst, "client-connection-burst", 100, "burst of API requests")
	own.DurationVar(&l.interval, "descheduling-interval", 0,
		"time between cycle starts; 0: one cycle")
	own.BoolVar(&l.dryRun, "dry-run", false, "print the plan without evicting pods")
	own.BoolVar(&l.elect, "leader-elect", false,
		"elect a leader; needs an interval")
	own.DurationVar(&l.election.LeaseDuration, "leader-elect-lease-duration", 137*time.Second,
		"validity of an unrenewed lease")
	own.DurationVar(&l.election.RenewDeadline, "leader-elect-renew-deadline", 107*time.Second,
		"time to renew, else stop")
	own.DurationVar(&l.election.RetryPeriod, "leader-elect-retry-period", 26*time.Second,
		"time between attempts")
	own.StringVar(&l.election.Namespace, "leader-elect-resource-namespace", "kube-system",
		"namespace of the election Lease")
	// The default is the Lease of the descheduler, so that only one of the two programs acts.
	own.StringVar(&l.election.Name, "leader-elect-resource-name", "descheduler",
		"name of the election Lease")
	own.StringVar(&l.leases, "load-namespace", "jettison-system",
		"namespace of load Leases")
	own.StringVar(&l.address, "address", "127.0.0.1:10258",
		"serve metrics and health; empty: off")
	for _, name := range []string{"leader-elect-resource-namespace", "leader-elect-resource-name",
		"load-namespace", "address"} {
		commandline.Values[string](own, name)
	}
	own.VisitAll(func(flag *pflag.Flag) { l.flags = append(l.flags, flag.Name) })
	f.AddFlagSet(own)
	l.log.Add(f)
	l.flags = append(l.flags, "log-level")
}

// changed returns the first of these flags that was given; empty: none.
func (l *liveFlags) changed(f *pflag.FlagSet) string {
	for _, name := range l.flags {
		if f.Changed(name) {
			return name
		}
	}
	return ""
}

func (l *liveFlags) check() error {
	switch {
	case l.interval < 0:
		return fmt.Errorf("--descheduling-interval %v: want 0 or more", l.interval)
	case l.elect && l.interval == 0:
		return errors.New("--leader-elect requires --descheduling-interval")
	case l.elect && l.dryRun:
		return errors.New("--leader-elect cannot be combined with --dry-run")
	case l.elect:
		return l.election.Check()
	}
	return nil
}

func (l *liveFlags) run(ctx context.Context, o *planner.Offline, stdout *terminal.Screen,
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
		LeaseNamespace: l.leases, Version: l.version, Stdout: stdout,
	}
	if run.Log, err = l.log.Open(stderr); err != nil {
		return err
	}
	run.Reach = kubeclient.NewReach(api, run.Log)
	klog.SetSlogLogger(run.Reach.Quiet(run.Log)) // log of client-go
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
