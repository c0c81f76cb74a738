package nodes

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/config"
	"jettison/internal/cluster/kubeclient"
	"jettison/internal/cluster/replay"
	"jettison/internal/cluster/report"
)

// flags are those of `nodes`.
type flags struct {
	version                  string // of the program
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
		Long: `nodes decides what kube-controller-manager's node-lifecycle-controller and taint-eviction-controller decide: which nodes are
silent, which taints, labels and conditions they get, and which pods have to leave. It watches the cluster and acts, in one replica at a
time, until it is told to stop. --mode says how much of it: observe writes nothing and says what it would do; replace is for a cluster
whose controller manager runs with --controllers=*,-node-lifecycle-controller,-taint-eviction-controller, and does not begin while somebody
else writes the same taints; fence only takes nodes out of service that a check confirms dead. docs/operate/node-lifecycle.md has all of it.

--status asks the one that runs at --address how all nodes are; "explain" what becomes of a node's pods, or a pod.

--replay reads frames, one JSON object a line, and prints for each what is decided, a JSON object a line; nothing is written anywhere.
docs/operate/node-lifecycle.md has the format. "-" reads standard input. A malformed frame, or a time that goes backwards, ends it with exit code 1 and the
line and field.`,
		Example: "  jettison-cluster nodes --mode observe --kubeconfig ~/.kube/config\n" +
			"  jettison-cluster nodes --config cluster.yaml\n" +
			"  jettison-cluster nodes --status\n" +
			"  jettison-cluster nodes --replay frames.jsonl\n" +
			"  jettison-cluster nodes --replay - --config cluster.yaml --node-eviction-rate=20 < frames.jsonl",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.status && o.frames != "" {
				return commandline.Usage(errors.New("nodes: --status and --replay exclude each other"))
			}
			c, err := config.Load(cmd.Context(), o.path)
			if err == nil {
				err = o.over.Over(c)
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
	f.StringVar(&o.frames, "replay", "", "file of frames to decide on; - is standard input")
	f.StringVar(&o.path, "config", "", "configuration file")
	f.BoolVar(&o.status, "status", false,
		"print how all nodes are, as the one that runs at --address finds them")
	o.format.Add(f, "of --status: ")
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file that says where the API is (default the pod's service account)")
	o.log.Add(f)
	o.over = config.AddFlags(f)
	nested := report.Command(stdout)
	nested.Hidden = true // for who looks for it here
	cmd.AddCommand(nested)
	return cmd
}

// run runs until it is told to stop.
func (o *flags) run(ctx context.Context, c *config.Cluster, stderr io.Writer) error {
	log, err := o.log.Open(stderr)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log) // what client-go has to say
	if os.Getenv("GOMAXPROCS") == "" {
		// What watches say passes from goroutine to goroutine. To wake another processor for each costs
		// more than what they do: 500 Leases a second take 3.7 % of a core with two, 2.0 % with one.
		runtime.GOMAXPROCS(1)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // little becomes garbage at rest, and much is kept
	}
	api, err := kubeclient.Config(kubeclient.Options{
		Kubeconfig: o.kubeconfig, QPS: c.KubeAPIQPS, Burst: int(c.KubeAPIBurst),
		UserAgent: "jettison-cluster/" + o.version,
	})
	if err != nil {
		return commandline.Usage(err)
	}
	return Run(ctx, Options{Config: c, API: api, Version: o.version, Log: log})
}

func (o *flags) printStatus(ctx context.Context, address string, stdout *terminal.Screen) error {
	format, err := o.format.Format()
	if err != nil {
		return err
	}
	var s report.Status
	if err := report.Ask(ctx, address, report.StatusPath, "", &s); err != nil {
		return err
	}
	return s.Print(stdout, format)
}
