package nodes

import (
	"context"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"jettison/internal/base/commandline"
	"jettison/internal/cluster/config"
	"jettison/internal/cluster/kubeclient"
)

// flags holds the flags of `nodes`.
type flags struct {
	version          string // of this program
	path, kubeconfig string
	log              commandline.Log
	over             *config.Flags
}

// Command returns the command jettison-cluster nodes.
func Command(version string, stderr io.Writer) *cobra.Command {
	o := flags{version: version}
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Node lifecycle and taint eviction",
		Long: `nodes does the work of kube-controller-manager's node-lifecycle-controller and
taint-eviction-controller: it detects silent nodes, sets their conditions, taints and labels, and
evicts pods that do not tolerate the taints. It runs until it is stopped. Of several replicas, the
leader acts.

--mode selects what it may write:
  observe  nothing; it logs what it would write
  replace  everything. kube-controller-manager must run with
           --controllers=*,-node-lifecycle-controller,-taint-eviction-controller. nodes ends with an
           error if a pod of it in kube-system runs one of the two, or if it finds no such pod and
           --others-disabled is not set. It waits while another controller writes the same taints
  fence    only the out-of-service taint, on silent nodes that a check confirms dead. {node},
           {providerID} and {address} are replaced in --fence-url and the arguments of
           --fence-command

Without --mode it observes, or ends with an error if it has acted in the cluster before.

"status" prints the state of all nodes from the instance at --address, and "explain" the deadlines
of pods. An empty --address disables the status server. docs/operate/node-lifecycle.md describes the
modes.`,
		Example: "  jettison-cluster nodes --mode observe --kubeconfig ~/.kube/config\n" +
			"  jettison-cluster nodes --config cluster.yaml",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(cmd.Context(), o.path)
			if err == nil {
				err = o.over.Apply(c)
			}
			if err != nil {
				return commandline.Usage(err)
			}
			return o.run(cmd.Context(), c, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.path, "config", "", "configuration file")
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		kubeclient.KubeconfigUsage)
	o.log.Add(f)
	o.over = config.AddFlags(f)
	return cmd
}

// run runs the controller until its context ends.
func (o *flags) run(ctx context.Context, c *config.Cluster, stderr io.Writer) error {
	log, err := o.log.Open(stderr)
	if err != nil {
		return err
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// Watch events pass from goroutine to goroutine. Waking another processor for each costs
		// more than the work: 500 Leases per second take 3.7 % of a core with two processors, 2.0 %
		// with one.
		runtime.GOMAXPROCS(1)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // a large live heap with little garbage
	}
	api, err := kubeclient.Config(kubeclient.Options{
		Kubeconfig: o.kubeconfig, QPS: c.KubeAPIQPS, Burst: int(c.KubeAPIBurst),
		UserAgent: "jettison-cluster/" + o.version,
	})
	if err != nil {
		return commandline.Usage(err)
	}
	klog.SetSlogLogger(kubeclient.NewReach(api, log).Quiet(log)) // logs of client-go
	return Run(ctx, Options{Config: c, API: api, Version: o.version, Log: log})
}
