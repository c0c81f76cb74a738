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
		Short: "Ask the agent whether this node takes a pod",
		Long: `admit asks the agent that runs on this node whether the node takes a pod, and prints the answer in a kubelet's words: the
conditions of the node, room for what the pod requests, and whether this is the node that it asks for. Nothing comes of
asking. The file has one pod, which begins with apiVersion and kind as for kubectl. Without metadata.uid it is taken for a new one, and
without metadata.namespace for one in default.

--preempt acts: where the pod is critical and there is no room, the agent ends the fewest pods that make some, as a kubelet
does, each in its own grace period, and answers when the room is there; it is kept for the pod's UID for 30 s. Only root may,
and only for a pod that the runtime or a static manifest has by its UID. After 50 s without room there is no answer (1): the
pods go on ending, so try again.

Exit codes: 0 the pod is admitted; 3 it is refused; 1 there is no answer; 2 bad usage or configuration. docs/operate/admission.md has more.`,
		Example: "  jettison admit -f pod.yaml\n" +
			"  kubectl get pod web-1 -o json | jettison admit -f - -o json\n" +
			"  jettison admit -f critical.yaml --preempt",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.format, err = output.Format(); err != nil {
				return err
			}
			if len(files) != 1 || files[0] == "" {
				return commandline.Usage(
					errors.New("admit: name the pod's file with one -f, or - for standard input: see jettison admit --help"))
			}
			o.file = files[0]
			if o.socket, err = socket.Find(cmd, stderr); err != nil {
				return err
			}
			return o.run(cmd.Context(), stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "file of the pod, YAML or JSON; - is standard input")
	f.BoolVar(&o.preempt, "preempt", false,
		"have others killed, where the pod is critical and there is no room for it")
	output.Add(f, "")
	socket.Add(f)
	return cmd
}
