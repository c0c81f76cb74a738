package admit

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison admit.
func Command(stdin *os.File, stdout, stderr io.Writer) *cobra.Command {
	var output commandline.Output
	var socket flags.Socket
	var files []string
	o := options{stdin: stdin}
	cmd := &cobra.Command{
		Use:   "admit",
		Short: "Ask the agent whether this node admits a pod",
		Long: `admit asks the agent on this node whether the node admits a pod, and prints the answer with the
kubelet's reasons and messages. The agent checks the node's conditions, the resources that the pod
requests, and the pod's node selection. The query changes nothing.

The file holds one pod with apiVersion and kind, as for kubectl. A pod without metadata.uid counts
as a new pod; without metadata.namespace it belongs to the namespace default.

--preempt preempts: if the pod is critical and does not fit, the agent stops the fewest pods that
free enough resources, as a kubelet does, each with its own grace period. It answers when the
resources are free, and reserves them for the pod's UID for 30 s. --preempt needs root and a pod
that the runtime or a static manifest knows by its UID. If the resources are not free after 50 s,
the command fails with exit code 1 while the pods continue to stop: run it again. The default of
--timeout is 65 s with --preempt.

Exit codes: 0 the pod is admitted; 3 it is rejected; 1 no answer; 2 bad usage or configuration.
docs/operate/admission.md describes admission.`,
		Example: "  jettison admit --file pod.yaml\n" +
			"  kubectl get pod web-1 -o json | jettison admit --file - -o json\n" +
			"  jettison admit --file critical.yaml --preempt",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.format, err = output.Format(); err != nil {
				return err
			}
			if len(files) != 1 || files[0] == "" {
				return commandline.Usage(
					errors.New("admit: name the pod's file with one --file, or - for standard input: see jettison admit --help"))
			}
			o.file = files[0]
			if o.socket, err = socket.Find(cmd, stderr); err != nil {
				return err
			}
			if o.timeout = socket.Timeout; o.preempt && !cmd.Flags().Changed("timeout") {
				o.timeout = preemptTimeout
			}
			return o.run(cmd.Context(), stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&files, "file", nil, "file of the pod, YAML or JSON; - is standard input")
	f.BoolVar(&o.preempt, "preempt", false,
		"stop other pods if the pod is critical and does not fit")
	output.Add(f)
	socket.Add(f)
	socket.AddTimeout(f, queryTimeout)
	return cmd
}
