package nodes

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/config"
	"jettison/internal/cluster/kubeclient"
	"jettison/internal/cluster/replay"
	"jettison/internal/cluster/report"
)

// flags holds the flags of `nodes`.
type flags struct {
	version                  string // of this program
	frames, path, kubeconfig string
	status                   bool
	format                   commandline.Output
	log                      commandline.Log
	over                     *config.Flags
}

// Command returns the command jettison-cluster nodes.
func Command(version string, stdin io.Reader, stdout *terminal.Screen,
	stderr io.Writer) *cobra.Command {
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

--status prints the state of all nodes from the instance at --address; "explain" prints the
deadlines of pods. An empty --address disables the status server.

--replay reads frames, one JSON object per line, and prints the decisions on each frame as one JSON
object per line. It writes nothing to a cluster. "-" reads standard input. A malformed frame, or a
time that goes backwards, ends it with exit code 1 and an error with the line and field.

docs/operate/node-lifecycle.md describes the modes and the format of frames.`,
		Example: "  jettison-cluster nodes --mode observe --kubeconfig ~/.kube/config\n" +
			"  jettison-cluster nodes --config cluster.yaml\n" +
			"  jettison-cluster nodes --status\n" +
			"  jettison-cluster nodes --replay frames.jsonl\n" +
			"  jettison-cluster nodes --replay - --config cluster.yaml --node-eviction-rate=20 < frames.jsonl",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.status && o.frames != "" {
				return commandline.Usage(errors.New("nodes: --status and --replay cannot be combined"))
			}
			if _, err := o.format.Format(); err != nil {
				return err
			}
			c, err := config.Load(cmd.Context(), o.path)
			if err == nil {
				err = o.over.Apply(c)
			}
			switch {
			case err != nil:
				return commandline.Usage(err)
			case o.frames != "":
				return replay.Run(cmd.Context(), replay.Options{Path: o.frames, Stdin: stdin, Config: c},
					stdout)
			case o.status:
				return o.printStatus(cmd.Context(), c.Address, stdout)
			}
			return o.run(cmd.Context(), c, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.frames, "replay", "", "decide on the frames in this file; - is stdin")
	f.StringVar(&o.path, "config", "", "configuration file")
	f.BoolVar(&o.status, "status", false,
		"print all nodes' state from --address")
	o.format.Add(f, "status: ")
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		kubeclient.KubeconfigUsage)
	o.log.Add(f)
	o.over = config.AddFlags(f)
	nested := report.Command(stdout)
	nested.Hidden = true // an alias of jettison-cluster explain
	cmd.AddCommand(nested)
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

func (o *flags) printStatus(ctx context.Context, address string, stdout *terminal.Screen) error {
	format, err := o.format.Format()
	if err != nil {
		return err
	}
	var s report.Status
	if err := report.Fetch(ctx, 30*time.Second, address, report.StatusPath, "", &s); err != nil {
		return err
	}
	return s.Print(stdout, format)
}
