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
		Short: "Tell the agent of its pods, and the API of its evictions, until told to stop",
		Long: `run keeps the agent's pod objects as the API has them, and tells the API what the agent does: pods that it evicted Failed for the
reason Evicted, with the condition DisruptionTarget, events of pods and of the node, the conditions JettisonMemoryPressure,
JettisonDiskPressure and JettisonPIDPressure, and the node's load on a Lease. It stores nothing: the agent's records are the queue.
The agent or the API may be away, at the start, too: what is to be told waits.`,
		Example: "  jettison-bridge run\n  jettison-bridge run --evicted-status=false",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Log, err = log.Open(stderr); err != nil {
				return err
			}
			klog.SetSlogLogger(o.Log) // what client-go has to say
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
	f.StringVar(&o.Node, "node-name", os.Getenv("NODE_NAME"), "the node's name at the API")
	f.StringVar(&o.Socket, "socket", api.DefaultSocket, "the agent's socket")
	f.StringVar(&kubeconfig, "kubeconfig", "",
		"file that says where the API is (default the pod's service account)")
	f.BoolVar(&o.EvictedStatus, "evicted-status", true,
		"write the status of evicted pods; false: events alone")
	f.StringVar(&o.LeaseNamespace, "lease-namespace", kube.DefaultLeaseNamespace,
		"where the Lease is that tells the node's load; empty: it is not told")
	f.DurationVar(&o.TransitionPeriod, "transition-period", 5*time.Minute,
		"how long a condition stays true after an eviction: the kubelet's evictionPressureTransitionPeriod")
	log.Add(f)
	return cmd
}
