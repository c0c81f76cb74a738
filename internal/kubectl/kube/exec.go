package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"jettison/internal/kubectl/fleet"
)

// program is the agent's binary in its image, which has no shell.
const program = "/jettison"

// Command is a command of the agent's binary.
type Command struct {
	Args           []string
	Stdin          io.Reader // nil: none
	Stdout, Stderr io.Writer // Stderr is not used with TTY
	TTY            *TTY      // nil: none
}

// AgentPod returns the name of the pod in which the agent of a node runs.
func (c *Client) AgentPod(ctx context.Context, node string) (string, error) {
	q := c.queries(Selection{})[1]
	q.selectors.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	found, _, err := q.all(ctx)
	if err != nil {
		return "", fmt.Errorf("find the agent's pod: %w", err)
	}
	var pods []*v1.Pod
	for _, o := range found {
		if p, ok := o.(*v1.Pod); ok {
			pods = append(pods, p)
		}
	}
	pod, state := fleet.Running(pods)
	switch {
	case pod != nil:
		return pod.Name, nil
	case len(pods) > 0:
		return "", fmt.Errorf("the agent does not run in pod %s/%s of node %s (%s): see kubectl -n "+
			"%[1]s describe pod %[2]s", c.Namespace, pods[len(pods)-1].Name, node, cmp.Or(state, "state unknown"))
	}
	err = c.core.Get().Resource("nodes").Name(node).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("node %.64q does not exist: %w", node, errNoNode)
	}
	return "", fmt.Errorf("node %s has no pod of the agent in namespace %s (label %s): set --namespace, "+
		"or install the agent; if it runs without a pod: ssh %[1]s jettison status",
		node, c.Namespace, fleet.Selector)
}

// Exec runs a command of the agent's binary in its pod and returns the exit code of the command. An
// error means that it is unknown.
func (c *Client) Exec(ctx context.Context, pod string, cmd Command) (code int, err error) {
	options := &v1.PodExecOptions{Container: fleet.Container, Command: append([]string{program}, cmd.Args...),
		Stdin: cmd.Stdin != nil, Stdout: true, Stderr: cmd.TTY == nil, TTY: cmd.TTY != nil}
	url := c.core.Post().Namespace(c.Namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(options, parameters).URL()
	// The API server takes an exec over WebSockets as a GET (v1.30), an older one only SPDY.
	sockets, err := remotecommand.NewWebSocketExecutor(c.config, "GET", url.String())
	if err != nil {
		return 0, fmt.Errorf("exec in pod %s/%s: %w", c.Namespace, pod, err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.config, "POST", url)
	if err != nil {
		return 0, fmt.Errorf("exec in pod %s/%s: %w", c.Namespace, pod, err)
	}
	executor, err := remotecommand.NewFallbackExecutor(sockets, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return 0, fmt.Errorf("exec in pod %s/%s: %w", c.Namespace, pod, err)
	}
	stdout, stderr := &stoppable{to: cmd.Stdout}, &stoppable{to: cmd.Stderr}
	defer stdout.stop()
	defer stderr.stop()
	streams := remotecommand.StreamOptions{Stdin: cmd.Stdin, Stdout: stdout, Stderr: stderr}
	if cmd.TTY != nil {
		streams.Stderr, streams.Tty, streams.TerminalSizeQueue = nil, true, cmd.TTY
	}
	err = executor.StreamWithContext(ctx, streams)
	var exit exec.CodeExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exit.Code, nil
	case ctx.Err() != nil:
		return 0, fmt.Errorf("exec in pod %s/%s: %w", c.Namespace, pod, context.Cause(ctx))
	case strings.Contains(err.Error(), "is forbidden: User"): // from the authorizer, as a failed upgrade
		return 0, fmt.Errorf("exec in pod %s/%s: %w: the user needs get and create on pods/exec in "+
			"namespace %[1]s", c.Namespace, pod, err)
	}
	return 0, fmt.Errorf("exec in pod %s/%s: %w", c.Namespace, pod, err)
}

// stoppable is a writer that drops output after stop. When its context ends, the executor returns
// while its goroutines still copy the output.
type stoppable struct {
	mu sync.Mutex
	to io.Writer // nil: stopped
}

// Write writes to the destination.
func (s *stoppable) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == nil {
		return 0, io.ErrClosedPipe
	}
	return s.to.Write(b)
}

func (s *stoppable) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = nil
}
