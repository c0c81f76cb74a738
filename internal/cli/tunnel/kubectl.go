package tunnel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
)

// Parts of the DaemonSet in deploy/base.
const (
	podSelector = "app.kubernetes.io/name=jettison"
	container   = "agent"
	program     = "/jettison"
)

const (
	requestTimeout = "--request-timeout=10s" // of a query to the API server
	maxList        = 4 << 20                 // bytes of a list of pods
	maxReason      = 2 << 10                 // bytes of kubectl's standard error that an error quotes
	// exitDelay is the time between the kill of kubectl and the end of its output, which a credential
	// plugin may keep open.
	exitDelay = time.Second
)

// Target is a node whose agent runs in a pod, and how kubectl reaches its cluster.
type Target struct {
	Node, Namespace, Kubeconfig, Context string

	timeout time.Duration // openTimeout; shorter in tests
}

// Flags of a Target. The others need flagNode.
const (
	flagNode       = "node"
	flagNamespace  = "namespace"
	flagKubeconfig = "kubeconfig"
	flagContext    = "context"
)

// Add adds the flags.
func (t *Target) Add(f *pflag.FlagSet) {
	f.StringVar(&t.Node, flagNode, "",
		"node of the agent, reached by kubectl exec in its pod (default: this machine)")
	f.StringVar(&t.Namespace, flagNamespace, "kube-system",
		"with --node: namespace of the agent's pod")
	f.StringVar(&t.Kubeconfig, flagKubeconfig, "", "with --node: kubeconfig file, as in kubectl")
	f.StringVar(&t.Context, flagContext, "", "with --node: context of the kubeconfig, as in kubectl")
	for _, flag := range []string{flagNode, flagNamespace, flagContext} {
		commandline.Values[string](f, flag)
	}
}

// Check reports whether the flags name a node. An error is a usage error.
func (t *Target) Check(cmd *cobra.Command) (remote bool, err error) {
	f := cmd.Flags()
	if !f.Changed(flagNode) {
		for _, flag := range []string{flagNamespace, flagKubeconfig, flagContext} {
			if f.Changed(flag) {
				return false, commandline.Usage(fmt.Errorf("--%s: use it with --node", flag))
			}
		}
		return false, nil
	}
	for _, flag := range []string{"socket", "config"} {
		if f.Changed(flag) {
			err := fmt.Errorf("--%s is a file of this machine: omit it with --node", flag)
			return false, commandline.Usage(err)
		}
	}
	if wrong := validation.IsDNS1123Subdomain(t.Node); len(wrong) > 0 {
		return false, commandline.Usage(fmt.Errorf("--node %.60q: %s", t.Node, wrong[0]))
	}
	if wrong := validation.IsDNS1123Label(t.Namespace); len(wrong) > 0 {
		return false, commandline.Usage(fmt.Errorf("--namespace %.60q: %s", t.Namespace, wrong[0]))
	}
	if err := t.checkKubeconfig(); err != nil {
		return false, err
	}
	return true, nil
}

// checkKubeconfig returns an error for a kubeconfig that is not a regular file: kubectl reads a
// device such as /dev/zero until its memory is exhausted.
func (t *Target) checkKubeconfig() error {
	if t.Kubeconfig == "" {
		return nil
	}
	info, err := os.Stat(t.Kubeconfig)
	switch {
	case err != nil:
		return fmt.Errorf("--kubeconfig: %w", err)
	case !info.Mode().IsRegular():
		return commandline.Usage(fmt.Errorf("--kubeconfig %s: not a regular file", t.Kubeconfig))
	}
	return nil
}

// kubectl returns a command of kubectl, which is killed when ctx ends. Its standard error goes to
// reason.
func (t *Target) kubectl(ctx context.Context, reason *tail, args ...string) *exec.Cmd {
	global := []string{"--namespace=" + t.Namespace}
	if t.Kubeconfig != "" {
		global = append(global, "--kubeconfig="+t.Kubeconfig)
	}
	if t.Context != "" {
		global = append(global, "--context="+t.Context)
	}
	cmd := exec.CommandContext(ctx, "kubectl", append(global, args...)...)
	cmd.Stderr, cmd.WaitDelay = reason, exitDelay
	return cmd
}

// get runs kubectl get and returns its output.
func (t *Target) get(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	var out head
	var reason tail
	what := "get " + args[0]
	cmd := t.kubectl(ctx, &reason, append([]string{"get", requestTimeout}, args...)...)
	cmd.Stdout = &out
	err := cmd.Run()
	switch {
	case out.err != nil:
		return nil, t.failed(what, "", out.err)
	case ctx.Err() != nil && reason.String() == "":
		return nil, t.noAnswer(what, t.timeout)
	case err != nil:
		return nil, t.failed(what, reason.String(), err)
	}
	return out.text, nil
}

// dial finds the agent's pod and starts kubectl exec in it. The connection ends with ctx.
func (t *Target) dial(ctx context.Context) (*link, error) {
	pod, err := t.findPod(ctx)
	if err != nil {
		return nil, err
	}
	return t.exec(ctx, pod)
}

// findPod returns the name of the node's pod in which the agent runs.
func (t *Target) findPod(ctx context.Context) (string, error) {
	text, err := t.get(ctx, "pods", "--selector="+podSelector,
		"--field-selector=spec.nodeName="+t.Node, "--output=json")
	if err != nil {
		return "", err
	}
	var list v1.PodList
	if err := json.Unmarshal(text, &list); err != nil {
		return "", t.failed("get pods", "", fmt.Errorf("decode the list of pods: %w", err))
	}
	if len(list.Items) == 0 {
		return "", t.noPod(ctx)
	}
	for _, pod := range list.Items { // kubectl would take some names for a flag
		if wrong := validation.IsDNS1123Subdomain(pod.Name); len(wrong) > 0 {
			return "", t.failed("get pods", "", fmt.Errorf("pod name %.60q: %s", pod.Name, wrong[0]))
		}
	}
	state := ""
	for _, pod := range list.Items {
		state = string(pod.Status.Phase)
		for _, c := range pod.Status.ContainerStatuses {
			switch {
			case c.Name != container:
			case c.State.Running != nil:
				return pod.Name, nil
			case c.State.Waiting != nil:
				state = c.State.Waiting.Reason
			case c.State.Terminated != nil:
				state = c.State.Terminated.Reason
			}
		}
	}
	pod := list.Items[len(list.Items)-1].Name
	return "", fmt.Errorf("the agent does not run in pod %s/%s of node %s (%s): "+
		"see kubectl -n %[1]s describe pod %[2]s",
		t.Namespace, pod, t.Node, cmp.Or(state, "state unknown"))
}

// noPod returns the error for a node without a pod of the agent.
func (t *Target) noPod(ctx context.Context) error {
	var kubectl *kubectlError
	if _, err := t.get(ctx, "node", t.Node, "--output=name"); errors.As(err, &kubectl) &&
		strings.Contains(kubectl.reason, "(NotFound)") {
		return fmt.Errorf("node %s does not exist: kubectl get nodes lists the nodes", t.Node)
	}
	return fmt.Errorf("node %s has no pod of the agent in namespace %s (label %s): set --namespace, "+
		"or install the agent; if it runs without a pod: %s",
		t.Node, t.Namespace, podSelector, t.overSSH())
}

// overSSH returns a command line that needs no pod.
func (t *Target) overSSH() string {
	return fmt.Sprintf("ssh -t -L 5388:127.0.0.1:5388 %s jettison ui", t.Node)
}

// kubectlError is the error of a command of kubectl.
type kubectlError struct{ reason, text string }

// Error returns the command, its reason, and the remedy.
func (e *kubectlError) Error() string { return e.text }

// failed returns the error of a command of kubectl that printed a reason, or else ended with err.
func (t *Target) failed(what, reason string, err error) error {
	reason = cmp.Or(reason, err.Error())
	text := fmt.Sprintf("kubectl %s: %s", what, reason)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		text = "kubectl is not in $PATH: install it, or run " + t.overSSH()
	case strings.Contains(reason, "is forbidden: User"): // from the authorizer
		text += ": in namespace " + t.Namespace +
			", the user needs get and list on pods, and get and create on pods/exec"
	case strings.Contains(reason, "unknown command") && strings.Contains(reason, name):
		text += ": the agent is older than this jettison: upgrade it, or run " + t.overSSH()
	}
	return &kubectlError{reason: reason, text: text}
}

// noAnswer returns the error for a command of kubectl without an answer.
func (t *Target) noAnswer(what string, limit time.Duration) error {
	return t.failed(what, "", fmt.Errorf("no answer within %v", limit))
}

// errTooLong reports more output than maxList.
var errTooLong = fmt.Errorf("output larger than %d bytes", maxList)

// head stores the output of a program, at most maxList bytes.
type head struct {
	text []byte
	err  error // errTooLong
}

// Write fails at the limit, which ends the program.
func (h *head) Write(b []byte) (int, error) {
	if len(h.text)+len(b) > maxList {
		h.err = errTooLong
		return 0, h.err
	}
	h.text = append(h.text, b...)
	return len(b), nil
}

// tail stores the last maxReason bytes of a program's output.
type tail struct{ text []byte }

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	t.text = slices.Delete(t.text, 0, max(0, len(t.text)-maxReason))
	return len(b), nil
}

// String returns the text on one line.
func (t *tail) String() string { return output.OneLine(string(t.text)) }
