package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"jettison/e2e/build"
	"jettison/e2e/guestapi"
)

// Agent is the agent running on a node, in the pod that its DaemonSet would create.
type Agent struct {
	*Pod
}

// Overlays of deploy that a node can run.
const (
	OverlayContainerd     = "containerd"
	OverlayCRIO           = "crio"
	OverlayLeastPrivilege = "least-privilege"
)

// Overlay returns the overlay for the node's runtime.
func (n *Node) Overlay() string {
	if n.Runtime == guestapi.CRIO {
		return OverlayCRIO
	}
	return OverlayContainerd
}

// AgentPod builds the pod of an overlay of deploy, with further arguments for the agent.
func AgentPod(ctx context.Context, overlay string, args ...string) (*v1.Pod, error) {
	set, err := daemonSet(ctx, overlay)
	if err != nil {
		return nil, err
	}
	pod := &v1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Name, pod.Namespace = "jettison-agent", set.Namespace
	pod.Annotations = map[string]string{"kubernetes.io/config.source": "api"}
	for i := range pod.Spec.Volumes { // a kubelet without an API server writes no ConfigMap files: the scenario writes them
		if v := &pod.Spec.Volumes[i]; v.ConfigMap != nil {
			v.VolumeSource = v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: configFolder}}
		}
	}
	pod.Spec.Containers[0].Args = append(pod.Spec.Containers[0].Args, args...)
	return pod, nil
}

// configFolder is the guest's folder that replaces the ConfigMap.
const configFolder = "/etc/jettison"

var (
	rendering sync.Mutex
	rendered  = map[string]*appsv1.DaemonSet{}
)

// daemonSet renders an overlay as `kubectl apply -k` does, once per process.
func daemonSet(ctx context.Context, overlay string) (*appsv1.DaemonSet, error) {
	rendering.Lock()
	defer rendering.Unlock()
	if set := rendered[overlay]; set != nil {
		return set, nil
	}
	root, err := build.ModuleRoot(ctx)
	if err != nil {
		return nil, err
	}
	// The flags are those of the other builds, which then share compiled packages with this one.
	text, err := build.Run(ctx, filepath.Join(root, "deploy", "render"), []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off"},
		"go", "run", "-trimpath", ".", "../overlays/"+overlay)
	if err != nil {
		return nil, err
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "\nkind: DaemonSet\n") {
			continue
		}
		var set appsv1.DaemonSet
		if err := yaml.UnmarshalStrict([]byte(document), &set); err != nil {
			return nil, fmt.Errorf("render deploy/overlays/%s: %w", overlay, err)
		}
		rendered[overlay] = &set
		return &set, nil
	}
	return nil, fmt.Errorf("deploy/overlays/%s has no DaemonSet", overlay)
}

// StartAgent imports the agent's image, writes its config (none if empty) and starts its pod, or
// has the kubelet start it.
func (n *Node) StartAgent(ctx context.Context, config string, args ...string) (*Agent, error) {
	return n.StartAgentAs(ctx, n.Overlay(), config, args...)
}

// StartAgentAs works as StartAgent with another overlay.
func (n *Node) StartAgentAs(ctx context.Context, overlay, config string, args ...string) (*Agent, error) {
	object, err := AgentPod(ctx, overlay, append([]string{"--log-format=json"}, args...)...)
	if err != nil {
		return nil, err
	}
	return n.startAgent(ctx, object, config)
}

// StartAgentFrom works as StartAgent with another agent binary, for example of another version: a
// file of the guest.
func (n *Node) StartAgentFrom(ctx context.Context, program, config string, args ...string) (*Agent, error) {
	object, err := AgentPod(ctx, n.Overlay(), append([]string{"--log-format=json"}, args...)...)
	if err != nil {
		return nil, err
	}
	volume := v1.Volume{Name: "program", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: program}}}
	object.Spec.Volumes = append(object.Spec.Volumes, volume)
	c := &object.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: volume.Name, MountPath: "/jettison", ReadOnly: true})
	return n.startAgent(ctx, object, config)
}

func (n *Node) startAgent(ctx context.Context, object *v1.Pod, config string) (*Agent, error) {
	if err := n.Import(ctx, "/images/jettison.tar"); err != nil {
		return nil, err
	}
	folders := "mkdir -p"
	for _, v := range object.Spec.Volumes { // as a kubelet does for type DirectoryOrCreate
		if v.HostPath != nil && v.Name != "program" {
			folders += " " + v.HostPath.Path
		}
	}
	if _, err := n.Shell(ctx, folders); err != nil {
		return nil, err
	}
	if config != "" {
		if err := n.WriteFile(ctx, configFolder+"/config.yaml", []byte(config)); err != nil {
			return nil, err
		}
	}
	start := n.Run
	if n.kubelet { // a kubelet kills pods that it does not know
		start = n.RunStatic
	}
	pod, err := start(ctx, object)
	if err != nil {
		return nil, err
	}
	return &Agent{Pod: pod}, nil
}

// Exec runs a command in the agent's container through the runtime and returns its stdout. An exit
// code other than 0 is an error.
func (a *Agent) Exec(ctx context.Context, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callDeadline)
	defer cancel()
	res, err := a.node.client.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: a.Containers[0], Cmd: argv, Timeout: int64(callDeadline / time.Second)})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", res.ExitCode, build.Tail(strings.TrimSpace(string(res.Stderr)), 2000))
	}
	if err != nil {
		return nil, fmt.Errorf("run %v in the agent's container: %w", argv, err)
	}
	return res.Stdout, nil
}

// LogLine is one line of the agent's log.
type LogLine struct {
	Time   time.Time      `json:"time"`
	Msg    string         `json:"msg"`
	Fields map[string]any `json:"-"` // every field of the line, as encoding/json gives it
}

// Duration returns a field that log/slog wrote from a time.Duration: nanoseconds in JSON. It
// returns 0 if the field is missing or not a number.
func (l LogLine) Duration(field string) time.Duration {
	ns, _ := l.Fields[field].(float64)
	return time.Duration(ns)
}

// Log reads the agent's log lines from the runtime's log file ("TIME stream F text").
func (a *Agent) Log(ctx context.Context) ([]LogLine, error) {
	lines, _, err := a.LogFrom(ctx, 0)
	return lines, err
}

// LogFrom reads the log lines from an offset on and returns the offset after the last whole line,
// for the next call.
func (a *Agent) LogFrom(ctx context.Context, from int) (lines []LogLine, next int, err error) {
	content, err := a.node.ReadFile(ctx, a.LogPath("agent"), from)
	if err != nil {
		return nil, from, err
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	return parseLog(string(content)), from + len(content), nil
}

func parseLog(content string) (out []LogLine) {
	part := ""
	for raw := range strings.Lines(content) {
		words := strings.SplitN(strings.TrimSuffix(raw, "\n"), " ", 4)
		if len(words) < 4 {
			continue
		}
		part += words[3]
		if words[2] == "P" { // the runtime splits lines over 16 KiB
			continue
		}
		line := LogLine{Msg: part}
		if json.Unmarshal([]byte(part), &line.Fields) == nil {
			_ = json.Unmarshal([]byte(part), &line)
		}
		part = ""
		out = append(out, line)
	}
	return out
}

// WaitLog waits for the n-th line with a message and returns it.
func (a *Agent) WaitLog(ctx context.Context, limit time.Duration, msg string, n int) (line LogLine, err error) {
	err = a.node.Eventually(ctx, limit, fmt.Sprintf("the agent logs %q", msg), func(ctx context.Context) error {
		lines, err := a.Log(ctx)
		if err != nil {
			return err
		}
		seen := 0
		for _, l := range lines {
			if l.Msg == msg {
				if seen++; seen == n {
					line = l
					return nil
				}
			}
		}
		return fmt.Errorf("seen %d of %d, in %d lines", seen, n, len(lines))
	})
	return line, err
}
