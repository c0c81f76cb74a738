package bridge

import (
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"jettison/api"
	"jettison/internal/base/commandline"
	"jettison/internal/bridge/kube"
)

// Command returns the command jettison-bridge run.
func Command(version string, stderr io.Writer) *cobra.Command {
	o := Options{Version: version}
	var kubeconfig string
	var log commandline.Log
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Send pods to the agent and write its evictions to the Kubernetes API",
		Long: `run connects the agent of this node to the Kubernetes API until it is stopped.

It sends the agent the pods of this node, with their priorities and requests.
It writes to the API, for the agent:
  - evicted pods: phase Failed, reason Evicted, condition DisruptionTarget
  - events of pods and of the node
  - node conditions JettisonMemoryPressure, JettisonDiskPressure, JettisonPIDPressure
  - the load of the node, on a Lease

It stores nothing: the agent keeps the records of its evictions. The agent and the API server may
be unreachable, also at the start. The bridge retries and then writes all pending evictions.`,
		Example: "  jettison-bridge run\n  jettison-bridge run --evicted-status=false",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Log, err = log.Open(stderr); err != nil {
				return err
			}
			klog.SetSlogLogger(o.Log) // log lines of client-go
			if o.API, err = kube.Config(kubeconfig); err != nil {
				return commandline.Usage(err)
			}
			if err := o.Validate(); err != nil {
				return commandline.Usage(err)
			}
			return Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Node, "node-name", os.Getenv("NODE_NAME"), "name of the node in the Kubernetes API")
	f.StringVar(&o.Socket, "socket", api.DefaultSocket, "the agent's socket")
	f.StringVar(&kubeconfig, "kubeconfig", "",
		"path of the kubeconfig (default: the pod's service account)")
	f.BoolVar(&o.EvictedStatus, "evicted-status", true,
		"write pod statuses; false: send events only")
	f.StringVar(&o.LeaseNamespace, "lease-namespace", kube.DefaultLeaseNamespace,
		"namespace of load Lease; empty: off")
	f.DurationVar(&o.TransitionPeriod, "transition-period", 5*time.Minute,
		"time until a pressure condition is cleared; as the kubelet's evictionPressureTransitionPeriod")
	f.StringVar(&o.MetricsAddress, "metrics-address", "",
		"address of the metrics server; empty: off")
	commandline.Values[string](f, "node-name")
	commandline.Values[string](f, "metrics-address")
	commandline.Values[string](f, "lease-namespace")
	log.Add(f)
	return cmd
}
