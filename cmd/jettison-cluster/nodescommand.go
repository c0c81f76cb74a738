package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/cluster/config"
	"jettison/internal/cluster/replay"
)

func nodesCommand(stdin io.Reader, stdout io.Writer) *cobra.Command {
	var frames, path string
	var flags *config.Flags
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Node lifecycle and taint eviction",
		Long: `nodes decides what kube-controller-manager's node-lifecycle-controller and taint-eviction-controller decide: which nodes are
silent, which taints, labels and conditions they get, and which pods have to leave.

--replay reads frames, one JSON object a line, and prints for each what is decided, a JSON object a line; nothing is written anywhere.
docs/cluster.md has the format. "-" reads standard input. A malformed frame, or a time that goes backwards, ends it with exit code 1 and the
line and field.`,
		Example: "  jettison-cluster nodes --replay frames.jsonl\n" +
			"  jettison-cluster nodes --replay - --config cluster.yaml --node-eviction-rate=20 < frames.jsonl",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if frames == "" {
				return usageError{errors.New("nodes needs --replay FRAMES.jsonl: see jettison-cluster nodes --help")}
			}
			c, err := config.Load(cmd.Context(), path)
			if err == nil {
				err = flags.Over(c)
			}
			if err != nil {
				return usageError{err}
			}
			return replay.Run(cmd.Context(), replay.Options{Path: frames, Stdin: stdin, Config: c}, stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&frames, "replay", "", "file of frames to decide on; - is standard input")
	f.StringVar(&path, "config", "", "configuration file")
	flags = config.AddFlags(f)
	return cmd
}
