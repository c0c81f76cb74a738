package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"jettison/api"
	"jettison/internal/bridge"
	"jettison/internal/bridge/kube"
)

// defaultNamespace is where the nodes' load is told.
const defaultNamespace = "jettison-system"

func runCommand(stderr io.Writer) *cobra.Command {
	o := bridge.Options{Version: version}
	var kubeconfig, format, level string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Tell the agent of its pods, and the API of its evictions, until told to stop",
		Long: `run keeps the agent's pod objects as the API has them, and tells the API what the agent does: pods that it evicted Failed for the
reason Evicted, with the condition DisruptionTarget, events of pods and of the node, the conditions JettisonMemoryPressure,
JettisonDiskPressure and JettisonPIDPressure, and the node's load on a Lease. It stores nothing: the agent's records are the queue.
The agent or the API may be away, at the start, too: what is to be told waits.`,
		Example: "  jettison-bridge run\n  jettison-bridge run --evicted-status=false",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Log, err = logger(stderr, format, level); err != nil {
				return usageError{err}
			}
			klog.SetSlogLogger(o.Log) // what client-go has to say
			if o.API, err = kube.Config(kubeconfig); err != nil {
				return usageError{err}
			}
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			return bridge.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Node, "node-name", os.Getenv("NODE_NAME"), "the node's name at the API")
	f.StringVar(&o.Socket, "socket", api.DefaultSocket, "the agent's socket")
	f.StringVar(&kubeconfig, "kubeconfig", "", "file that says where the API is (default the pod's service account)")
	f.BoolVar(&o.EvictedStatus, "evicted-status", true, "write the status of evicted pods; false: events alone")
	f.StringVar(&o.LeaseNamespace, "lease-namespace", defaultNamespace, "where the Lease is that tells the node's load; empty: it is not told")
	f.DurationVar(&o.TransitionPeriod, "transition-period", 5*time.Minute,
		"how long a condition stays true after an eviction: the kubelet's evictionPressureTransitionPeriod")
	f.StringVar(&format, "log-format", "text", "text or json")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func logger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", format)
}
